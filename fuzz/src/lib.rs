//! Shared by the targets: files for each process that fuzzes, in memory where there is such a
//! place, and sources that look at images.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use wave_data::{Augment, DataError, Loader, RawImage, ResizedCrop, Source, Transform};

/// A directory of this process alone.
pub fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let dir = tempfile::Builder::new()
            .prefix("wave-fuzz-")
            .tempdir_in(parent);
        // Fuzzers are ended by signals, so nothing would remove it; the files in it are small.
        dir.expect("a temporary directory").keep()
    })
}

/// The file `name` in [`directory`], with this content.
pub fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = directory().join(name);
    std::fs::write(&path, content).expect("a file in the temporary directory");
    path
}

/// Lets `catch_unwind` do its work: libFuzzer's hook would end the process. A panic that nothing
/// catches still does.
pub fn let_panics_be_caught() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// Turns off the cache of what data sets hold. To be called before there are threads.
pub fn without_cache() {
    // SAFETY: libFuzzer calls the initialisation before it starts any thread.
    unsafe { std::env::set_var("WAVE_CACHE", "") };
}

/// Opens a data set from files, and looks at the first of its images.
pub fn look_at_images(spec: &Path) {
    let Ok(data) = wave_data::open(spec.to_str().expect("UTF-8")) else {
        return;
    };
    for source in [&data.train, &data.test] {
        for i in 0..source.len().min(8) {
            let _ = (source.name(i), source.label(i), source.image(i));
        }
        let _ = source.image(source.len());
    }
}

/// One image file.
struct One(Vec<u8>);

impl Source for One {
    fn len(&self) -> usize {
        1
    }

    fn label(&self, _: usize) -> u32 {
        0
    }

    fn image(&self, _: usize) -> Result<RawImage, DataError> {
        wave_data::decode(&self.0, "x")
    }

    fn encoded(&self, _: usize) -> Result<Option<Vec<u8>>, DataError> {
        Ok(Some(self.0.clone()))
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        None
    }
}

/// Makes training input of an image file: random crops, which need not decode all of it.
pub fn crop(file: &[u8]) {
    let transform = Transform::new(8, vec![0.5; 3], vec![0.5; 3]);
    let augment = Augment {
        resized_crop: Some(ResizedCrop::default()),
        ..Augment::NONE
    };
    let source = Arc::new(One(file.to_vec()));
    let loader = Loader::train(source, vec![0], transform, augment, 1, None, 0);
    let loader = loader.expect("sound settings");
    for step in 0..3 {
        let _ = loader.batch(step);
    }
}
