//! `wave bench`: compares ways to initialise models.
//!
//! 1. [`bench::Grid`] reads the `[bench]` table: methods, sizes, data sets, seeds.
//! 2. Donors and templates are made once for all sizes.
//! 3. `bench::Frame` holds what all models share: image size, classes, the auxiliary's shape.
//! 4. A `bench::Cell` is one training: initialised by its method, then fine-tuned in the same way as all others.
//! 5. Each method's learning rate is chosen by trials on held-out images.
//! 6. A cell's row is written to disk with a fingerprint of everything that determines it. Existing rows are not
//!    computed again.
//! 7. `report` turns the rows into means, deviations, paired differences and break-even points: `report.md`,
//!    with plots next to it.
//!
//! ```
//! use wave_bench::bench::Grid;
//! use wave_run::recipe::Recipe;
//!
//! let table = [
//!     "bench.sizes=[[2, 32], [4, 64]]",
//!     "bench.seeds=[0, 1, 2]",
//!     "bench.methods.mimetic.start=mimetic",
//!     "bench.methods.timm.start=timm",
//! ];
//! let grid = Grid::new(&Recipe::empty("mine", &table.map(String::from))?)?;
//! assert_eq!(grid.subject(), "mimetic");
//! assert_eq!(grid.runs(), 12);
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod bench;
mod grid;
mod report;
