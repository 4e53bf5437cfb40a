//! SHA-256, for provenance and for checking copies.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::HubError;
use crate::files::check_is_file;

/// The SHA-256 of a file of any size, as 64 lower-case hexadecimal digits.
pub fn sha256_file(path: &Path) -> Result<String, HubError> {
    check_is_file(path)?;
    let mut file = File::open(path).map_err(HubError::io("read", path))?;
    let mut hasher = Sha256::new();
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let read = (&mut file).take(1 << 20).read_to_end(&mut piece);
        match read.map_err(HubError::io("read", path))? {
            0 => return Ok(hex(&hasher.finalize())),
            _ => hasher.update(&piece),
        }
    }
}

/// The SHA-256 of `bytes`, as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// True if a text has only lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b"0123456789abcdef".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    // python3 -c "import hashlib; print(hashlib.sha256(b'wave').hexdigest())"
    const WAVE: &str = "4b125ec99a74470517f9f51ac1a70eafa3dbd1ddd4bae409fe59a98ed720a3a4";
    // python3 -c "import hashlib; print(hashlib.sha256(bytes(3_000_000)).hexdigest())"
    const ZEROS: &str = "35bce4eae54ec8e6cc2868baa8d157914d6ae2858811b4cc0c078c94460fa26f";

    #[test]
    fn digests_equal_pythons() {
        assert_eq!(sha256_hex(b"wave"), WAVE);
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("zeros");
        std::fs::write(&path, vec![0; 3_000_000]).unwrap();
        assert_eq!(sha256_file(&path).unwrap(), ZEROS);
    }

    #[test]
    fn a_missing_file_is_a_wrong_request() {
        let error = sha256_file(Path::new("no/such/file")).unwrap_err();
        assert!(error.is_request());
        assert!(error.to_string().contains("no/such/file"), "{error}");
    }
}
