//! Progress on stderr: a bar on a terminal, plain lines otherwise, nothing with `--quiet`.

use crate::terminal::{printable, tell};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Amount of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only.
    #[default]
    Quiet,
    /// Progress and results.
    Normal,
    /// Also the decisions made on the way.
    Verbose,
}

/// Prints a line on stderr, unless `--quiet`. Failures to write are ignored.
pub fn say(verbosity: Verbosity, text: &str) {
    if verbosity > Verbosity::Quiet {
        tell(text);
    }
}

/// Verbosity of this process; unset outside the command.
static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

/// Sets the verbosity of [`note`], once for this process.
pub fn set_verbosity(verbosity: Verbosity) {
    let _ = VERBOSITY.set(verbosity);
}

/// Prints a note on stderr.
pub fn note(text: &str) {
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.insert(text.into()) {
        say(*VERBOSITY.get().unwrap_or(&Verbosity::Quiet), text);
    }
}

/// Progress of a long task.
pub struct Report {
    bar: Option<ProgressBar>,
    label: String,
    verbosity: Verbosity,
    last_line: Instant,
    started: Instant,
    first: u64,
    total: u64,
    /// The share of the work at the first report.
    before: Option<f64>,
}

/// The bars of this process, so that one that begins while another lasts has a line of its own.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A duration in seconds, minutes or hours.
fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// Time between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Report {
    /// Progress of `total` steps, of which `first` are done.
    pub fn new(label: &str, first: u64, total: u64, verbosity: Verbosity) -> Report {
        let terminal = std::io::stderr().is_terminal() && verbosity > Verbosity::Quiet;
        let bar = terminal.then(|| {
            let bar = BARS.add(
                ProgressBar::new(total)
                    .with_position(first)
                    .with_prefix(printable(label).into_owned()),
            );
            // The message is cut to the terminal's width.
            let style = "{prefix} {bar:12} {pos}/{len} {wide_msg}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        let now = Instant::now();
        let label = label.to_string();
        Report {
            bar,
            label,
            verbosity,
            last_line: now,
            started: now,
            first,
            total,
            before: None,
        }
    }

    /// Reports `done` steps, with a message.
    pub fn step(&mut self, done: u64, images_per_step: usize, message: &str) {
        let share = done as f64 / self.total.max(1) as f64;
        self.step_of(done, share, images_per_step, message);
    }

    /// Reports `done` steps, which are this share of all the work, with a message.
    pub fn step_of(&mut self, done: u64, share: f64, images_per_step: usize, message: &str) {
        let elapsed = self.started.elapsed().as_secs_f64();
        let before = *self.before.get_or_insert(share);
        let rate = (done - self.first) as f64 / elapsed.max(1e-9);
        // The first step, whose share is not counted, tells nothing yet.
        let left = match share > before {
            true => minutes(elapsed * (1.0 - share) / (share - before)),
            false => "?".into(),
        };
        let speed = rate * images_per_step as f64;
        let text = format!("{left} left, {message}{speed:.0} images/s");
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(printable(&text).into_owned());
            }
            None if self.verbosity > Verbosity::Quiet && self.last_line.elapsed() > LINE_EVERY => {
                self.last_line = Instant::now();
                tell(&format!("{} {done}/{} {text}", self.label, self.total));
            }
            None => {}
        }
    }

    /// Prints a line that stays.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(printable(&format!("{} {text}", self.label))),
            None if self.verbosity > Verbosity::Quiet => tell(&format!("{} {text}", self.label)),
            None => {}
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of files that come or go, several at a time: a bar of all their bytes on a terminal.
pub struct Transfers(Mutex<Files>);

struct Files {
    bar: Option<ProgressBar>,
    last_line: Instant,
    /// Bytes done and in all of each file.
    files: BTreeMap<String, (u64, u64)>,
    /// Their sums.
    done: u64,
    total: u64,
}

impl Default for Transfers {
    fn default() -> Self {
        Transfers::new()
    }
}

impl Transfers {
    /// Nothing transferred yet.
    pub fn new() -> Transfers {
        Transfers(Mutex::new(Files {
            bar: None,
            last_line: Instant::now(),
            files: BTreeMap::new(),
            done: 0,
            total: 0,
        }))
    }

    /// Reports that `done` of the `total` bytes of a file are transferred.
    pub fn step(&self, file: &str, done: u64, total: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = total.max(done);
        let before = all.files.insert(file.to_owned(), (done, total));
        let (old_done, old_total) = before.unwrap_or_default();
        all.done = all.done + done - old_done;
        all.total = all.total + total - old_total;
        all.show(file);
    }

    /// Ends the bar, with a line on what was transferred.
    pub fn finish(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = all.bar.take() {
            bar.finish_and_clear();
        }
        if !all.files.is_empty() && shown() {
            tell(&format!("{} files, {} bytes", all.files.len(), all.done));
        }
        all.files.clear();
        (all.done, all.total) = (0, 0);
    }
}

/// True if this process shows progress.
fn shown() -> bool {
    *VERBOSITY.get().unwrap_or(&Verbosity::Quiet) > Verbosity::Quiet
}

impl Files {
    fn show(&mut self, file: &str) {
        if !shown() {
            return;
        }
        if std::io::stderr().is_terminal() {
            let bar = self.bar.get_or_insert_with(|| {
                let style = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}";
                let style = ProgressStyle::with_template(style);
                let bar = ProgressBar::new(0);
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
                bar
            });
            bar.set_length(self.total);
            bar.set_position(self.done);
            bar.set_message(printable(file).into_owned());
        } else if self.last_line.elapsed() > LINE_EVERY {
            self.last_line = Instant::now();
            tell(&format!("{file}: {} of {} bytes", self.done, self.total));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_begin_again_are_counted_once() {
        let transfers = Transfers::new();
        for (file, done) in [
            ("a", 5),
            ("b", 10),
            ("b", 3),
            ("a", 10),
            ("b", 10),
            ("b", 10),
        ] {
            transfers.step(file, done, 10);
        }
        let all = transfers.0.lock().unwrap();
        assert_eq!((all.files.len(), all.done, all.total), (2, 20, 20));
    }
}
