//! What the processor's multiply-adds reach: the kernel's own, on one row and one column that are read again
//! and again, so that nothing waits for memory.

use super::kernel::{Product, Right};
use super::{Element, Mat, StartValue};
use crate::arithmetic::{Arithmetic, Precision};
use crate::bf16::Pair;
use crate::cpu::{Simd, current};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rows of a product: a multiple of every tile's.
const ROWS: usize = 48;
/// Multiply-adds of an entry.
const STEPS: usize = 1024;
/// Time of the measurement.
const LONG: Duration = Duration::from_millis(200);

/// Floating-point operations a second of all threads of the pool together, a multiply-add counted as two;
/// measured in a fifth of a second. In bf16 that of `f32` where the processor is not faster in bf16.
pub fn peak(precision: Precision) -> f64 {
    let Arithmetic { simd, precision } = Arithmetic::new(current(), precision);
    let rates = rayon::broadcast(|_| match precision {
        Precision::F32 => rate(simd, 0.5_f32, 1),
        Precision::Bf16 => rate(simd, Pair(0x3f00_3f00), 2), // 0.5 and 0.5
    });
    rates.into_iter().sum()
}

/// That of this thread; an element is so many numbers.
fn rate<T: Element>(simd: Simd, value: T, numbers: usize) -> f64 {
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
