use candle_core::{DType, Tensor};

use super::*;
use std::fs;

fn table() -> (Weights, Metadata) {
    let t = |name: &str, t: candle_core::Result<Tensor>| (name.to_string(), t.unwrap());
    let half = Tensor::new(&[[0.5f32, -1.0], [3.0, 1e-3]], &Device::Cpu).unwrap();
    let table = Weights::from([
        t("images", Tensor::new(&[7u32, 4_000_000_000], &Device::Cpu)),
        t("classes", Tensor::new(&[[1u8, 255], [0, 3]], &Device::Cpu)),
        t("values", half.to_dtype(DType::F16)),
    ]);
    let metadata = Metadata::from([("view".to_string(), "3".to_string())]);
    (table, metadata)
}

#[test]
fn a_table_keeps_its_types_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, again) = (dir.path().join("a"), dir.path().join("b"));
    let (written, metadata) = table();
    write_table(&path, &written, &metadata).unwrap();
    let (read, found) = read_table(&path).unwrap();
    assert_eq!(found, metadata);
    assert_eq!(read["images"].to_vec1::<u32>().unwrap(), [7, 4_000_000_000]);
    assert_eq!(read["classes"].to_vec2::<u8>().unwrap(), [[1, 255], [0, 3]]);
    assert_eq!(read["values"].dtype(), DType::F16);
    write_table(&again, &read, &found).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
}

#[test]
fn any_damage_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let (written, metadata) = table();
    write_table(&path, &written, &metadata).unwrap();
    let good = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let text = String::from_utf8(good[8..header].to_vec()).unwrap();
    let view = 8 + text.find("\"3\"").unwrap() + 1;
    for at in [0, 9, view, header, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&path, bad).unwrap();
        let error = read_table(&path).unwrap_err();
        assert!(error.is_request(), "byte {at}: {error}");
    }
    for n in 0..good.len() {
        fs::write(&path, &good[..n]).unwrap();
        assert!(read_table(&path).unwrap_err().is_request(), "{n} bytes");
    }
}
