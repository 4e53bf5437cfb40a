//! Peak rate of the kernel's multiply-adds, on one row and one column that are read repeatedly, so that
//! nothing waits for memory.

use super::kernel::{Product, Right};
use super::{Element, Mat, StartValue};
use crate::cpu::Simd;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rows of a product: a multiple of every tile height.
const ROWS: usize = 48;
/// Number of multiply-adds per entry.
const STEPS: usize = 1024;
/// Duration of the measurement.
const LONG: Duration = Duration::from_millis(200);

/// Floating-point operations per second of this thread; an element holds `numbers` numbers.
pub(crate) fn rate<T: Element>(simd: Simd, value: T, numbers: usize) -> f64 {
    let (columns, _) = T::panel(simd);
    let (a, b) = ([value; STEPS], vec![value; columns]);
    let mut c = vec![0.0; ROWS * columns];
    let (began, mut products) = (Instant::now(), 0);
    while began.elapsed() < LONG {
        T::multiply(simd, product(&a, &b, black_box(&mut c)));
        products += 1;
    }
    let operations = 2 * numbers * ROWS * columns * STEPS * products;
    operations as f64 / began.elapsed().as_secs_f64()
}

/// The product whose rows are all `a`, and whose columns repeat `b` in all steps.
fn product<'a, T>(a: &'a [T; STEPS], b: &'a [T], c: &'a mut [f32]) -> Product<'a, T> {
    Product {
        size: (ROWS, b.len(), STEPS),
        a: Mat {
            data: a,
            row_stride: 0,
            col_stride: 1,
        },
        b: Right {
            data: b,
            row_stride: Some(0),
        },
        start: StartValue::Zero,
        c,
        c_stride: b.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::current;
    use crate::{Precision, peak};

    #[test]
    fn all_steps_are_taken_and_the_rate_is_a_number() {
        let (columns, _) = f32::panel(current());
        let mut c = vec![0.0; ROWS * columns];
        let b = vec![0.5; columns];
        f32::multiply(current(), product(&[0.5; STEPS], &b, &mut c));
        assert!(c.iter().all(|c| *c == 0.25 * STEPS as f32));
        for precision in [Precision::F32, Precision::Bf16] {
            let peak = peak(precision);
            assert!((1e8..1e15).contains(&peak), "{peak}");
        }
    }
}
