//! Runs the cells of a grid in parallel.

use super::{Bench, Cell, Failure, Row};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wave_run::interrupt::Interruption;
use wave_run::progress::Verbosity;
use wave_run::run_dir::Options;
use wave_run::terminal::tell;

/// Runs the cells that are not on disk yet; returns all rows, in order, and adds the failures.
pub(super) fn run_cells(
    bench: &Bench,
    cells: &[Cell],
    dir: &Path,
    options: &Options,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Row>> {
    let done = AtomicUsize::new(0);
    let say = |text: String| {
        if options.verbosity > Verbosity::Quiet {
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            tell(&format!("[{n}/{}] {text}", cells.len()));
        }
    };
    let interruption = options.context.interruption();
    let row_of = |cell: &Cell| {
        bench.check()?;
        let name = cell.file_name();
        match cell_row(bench, cell, &dir.join(format!("{name}.json"))) {
            Err(error) if interruption.requested() => Err(error),
            Err(error) => {
                say(format!("{name} failed: {error:#}"));
                let error = format!("{error:#}");
                Ok(Err(Failure { cell: name, error }))
            }
            Ok((row, fresh)) => {
                let kept = if fresh { "" } else { ", from an earlier run" };
                say(format!("{name}: top-1 {:.2} %{kept}", 100.0 * row.top1));
                Ok(Ok(row))
            }
        }
    };
    let mut rows = Vec::new();
    for result in parallel(cells, bench.grid.bench.jobs, interruption, row_of)? {
        match result {
            Ok(row) => rows.push(row),
            Err(failure) => failures.push(failure),
        }
    }
    Ok(rows)
}

/// A cell's row, and true if the cell was run now, not read from disk.
fn cell_row(bench: &Bench, cell: &Cell, path: &Path) -> Result<(Row, bool)> {
    let fingerprint = bench.fingerprint(cell)?;
    if let Some(row) = saved(path).filter(|row| row.fingerprint == fingerprint) {
        return Ok((row, false));
    }
    let row = bench.run(cell, fingerprint)?;
    bench.check()?;
    let mut value = serde_json::to_value(&row)?;
    value[DIGEST] = digest_of(&value).into();
    wave_hub::write_json(path, &value)?;
    Ok((row, true))
}

/// The key of a row's digest in its file.
const DIGEST: &str = "sha256";

/// Reads the row in a file if its digest matches; an edited row is computed again.
fn saved(path: &Path) -> Option<Row> {
    let mut value: Value = serde_json::from_str(&wave_hub::read_text(path).ok()?).ok()?;
    let digest = value.as_object_mut()?.remove(DIGEST)?;
    (digest == digest_of(&value)).then(|| serde_json::from_value(value).ok())?
}

fn digest_of(row: &Value) -> String {
    wave_hub::sha256_hex(row.to_string().as_bytes())
}

/// Runs `work` on every item, on `jobs` threads that share the cores, and returns the results in order. After a
/// failure, no further items start.
pub(super) fn parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    interruption: &Interruption,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let jobs = jobs.min(items.len()).max(1);
    if jobs == 1 {
        return items.iter().map(work).collect();
    }
    let threads = (rayon::current_num_threads() / jobs).max(1);
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, R>> = Mutex::default();
    let failure: Mutex<Option<anyhow::Error>> = Mutex::default();
    let worker = || -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        while lock(&failure).is_none() && !interruption.requested() {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(i) else {
                break;
            };
            let result = pool.install(|| work(item))?;
            lock(&results).insert(i, result);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                if let Err(error) = worker() {
                    lock(&failure).get_or_insert(error);
                }
            });
        }
    });
    match lock(&failure).take() {
        Some(error) => Err(error),
        None if interruption.requested() => Err(wave_train::TrainError::Interrupted(0).into()),
        None => Ok(std::mem::take(&mut *lock(&results)).into_values().collect()),
    }
}

/// Locks a mutex, even after a panic of another thread: every change here is a single insertion.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
