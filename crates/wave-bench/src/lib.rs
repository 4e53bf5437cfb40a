//! `wave bench`: a comparison of ways to start models.
//!
//! 1. [`bench::Grid`] reads the `[bench]` table: methods, sizes, data sets, seeds.
//! 2. Donors and templates are made once for all sizes.
//! 3. [`bench::Frame`] is what all models share: image size, classes, the auxiliary's shape.
//! 4. A [`bench::Cell`] is one training. It starts as its method says, and is fine-tuned as all others are.
//! 5. Learning rates are tried on held-out images, each method's own.
//! 6. A cell's row goes to disk, with a fingerprint of everything that determines it. What is there does not
//!    run again.
//! 7. [`report`] makes means, deviations, paired differences and break-even points of the rows: `report.md`,
//!    with plots beside it.
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
pub mod report;
