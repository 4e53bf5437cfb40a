//! Makes a data set in the shape of ImageNet, for trying things out at its size.
//!
//!     cargo run --release -p wave-data --features parquet --example imagenet_like -- \
//!         OUT [CLASSES [TRAIN [VAL [SIDE [DISTINCT]]]]]
//!
//! Writes TRAIN (20,000) and VAL (2,000) images of CLASSES (1,000), some SIDE (64) pixels wide, in
//! every layout that wave reads: `OUT/folder` (ImageFolder), `OUT/shards` (tar, as `wave data pack`
//! makes them) and, with the feature, `OUT/parquet`. There are DISTINCT (1,024) different images; of
//! the folder's files the rest are hard links to them. `generate.rs` tells what is odd about some.

mod generate;

use std::error::Error;
use std::path::PathBuf;

use generate::Shape;

/// Bytes of a shard.
const SHARD: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("expected a directory to write to")?;
    let out = PathBuf::from(out);
    let mut number = |default: usize| match arguments.next() {
        Some(text) => text.parse().map_err(|_| format!("`{text}` is no number")),
        None => Ok(default),
    };
    let shape = Shape {
        classes: number(1_000)?,
        train: number(20_000)?,
        val: number(2_000)?,
        side: number(64)? as u32,
        distinct: number(1_024)?,
    };
    let folder = out.join("folder");
    generate::image_folder(&folder, &shape)?;
    let folder = folder.to_str().ok_or("the directory's name is not UTF-8")?;
    let data = wave_data::open(folder)?;
    println!("{folder}: {} + {} files", data.train.len(), data.test.len());
    let packed = wave_data::pack(&data, &out.join("shards"), SHARD)?;
    println!("{} shards, {} bytes", packed.shards.len(), packed.bytes);
    #[cfg(feature = "parquet")]
    for (name, source) in [("train", &data.train), ("val", &data.test)] {
        let path = out.join("parquet").join(format!("{name}.parquet"));
        let bytes = generate::parquet(&path, &**source)?;
        println!("{}: {bytes} bytes", path.display());
    }
    Ok(())
}
