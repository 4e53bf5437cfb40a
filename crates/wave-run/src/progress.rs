//! Progress on stderr: a bar on a terminal, plain lines otherwise, nothing with `--quiet`; or to a watcher, such as a
//! notebook.

use crate::terminal::{printable, tell};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A message to a watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Progress of a task.
    Step {
        /// Number of the task, unique in this process.
        task: u64,
        /// Its name.
        label: String,
        /// Steps done.
        done: u64,
        /// Total number of steps.
        total: u64,
        /// Time left, and the task's own message.
        text: String,
    },
    /// A task ended.
    End {
        /// Number of the task.
        task: u64,
    },
    /// A permanent line.
    Line(String),
}

/// Receives the progress of one thread's work, instead of stderr.
pub type Watcher = Arc<dyn Fn(Event) + Send + Sync>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// Runs `work` on this thread, and sends its progress and notes to `watcher`, if any.
pub fn watched<T>(watcher: Option<Watcher>, work: impl FnOnce() -> T) -> T {
    WATCHER.set(watcher);
    let done = work();
    WATCHER.take();
    done
}

fn watcher() -> Option<Watcher> {
    WATCHER.with_borrow(Clone::clone)
}

/// Prints a line to the watcher of this thread, or to stderr.
fn put(text: &str) {
    match watcher() {
        Some(watcher) => watcher(Event::Line(printable(text).into_owned())),
        None => tell(text),
    }
}

/// Amount of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Errors only.
    #[default]
    Quiet,
    /// Progress and results.
    Normal,
}

/// Prints a line on stderr, unless `--quiet`. Failures to write are ignored.
pub fn say(verbosity: Verbosity, text: &str) {
    if verbosity > Verbosity::Quiet {
        put(text);
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
    if noted.insert(text.into()) && shown() {
        put(text);
    }
}

/// A task with several reports, each for a part of its work: they show the time left for all of it.
#[derive(Clone, Copy)]
struct Whole {
    /// Fractions of the work at which the part begins and ends.
    part: (f64, f64),
    /// Time and fraction of the first report.
    began: Option<(Instant, f64)>,
    /// Seconds that earlier parts spent on other passes.
    passes: f64,
}

/// A report that is not part of another task.
const ALONE: Whole = Whole {
    part: (0.0, 1.0),
    began: None,
    passes: 0.0,
};

thread_local! {
    static WHOLE: Cell<Option<Whole>> = const { Cell::new(None) };
}

/// Runs parts of these sizes in turn, as one task.
pub fn parts<E>(sizes: &[f64], mut part: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
    let all: f64 = sizes.iter().sum();
    let mut done = 0.0;
    let result = sizes.iter().enumerate().try_for_each(|(at, size)| {
        WHOLE.set(Some(Whole {
            part: (done / all, (done + size) / all),
            ..WHOLE.get().unwrap_or(ALONE)
        }));
        done += size;
        part(at)
    });
    WHOLE.set(None);
    result
}

/// Seconds of passes over all images in addition to a task's own steps, such as an ancestor's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passes {
    /// Spent on completed passes.
    pub spent: f64,
    /// Expected for the remaining passes.
    pub ahead: f64,
}

/// The place where a task's progress is shown: a watcher, a bar on a terminal, or plain lines.
struct Display {
    shown: bool,
    bar: Option<ProgressBar>,
    /// The watcher of the thread that started the task.
    watcher: Option<Watcher>,
    task: u64,
    last_line: Instant,
}

/// Time between plain lines, and between messages to a watcher.
const LINE_EVERY: Duration = Duration::from_secs(10);
const EVENT_EVERY: Duration = Duration::from_millis(200);

impl Display {
    fn new(shown: bool, bar: impl FnOnce() -> ProgressBar) -> Display {
        static TASKS: AtomicU64 = AtomicU64::new(0);
        let watcher = watcher().filter(|_| shown);
        let drawn = shown && watcher.is_none() && std::io::stderr().is_terminal();
        Display {
            shown,
            bar: drawn.then(bar),
            watcher,
            task: TASKS.fetch_add(1, Ordering::Relaxed),
            last_line: Instant::now(),
        }
    }

    /// Shows that `done` of `total` is done, as the plain line `line` if there is neither a watcher nor a bar. A watcher
    /// always receives the `last` message.
    fn show(
        &mut self,
        (label, text): (&str, &str),
        (done, total): (u64, u64),
        last: bool,
        line: impl FnOnce() -> String,
    ) {
        let text = || printable(text).into_owned();
        let since = self.last_line.elapsed();
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(text());
        } else if let Some(watcher) = &self.watcher {
            if since > EVENT_EVERY || last {
                self.last_line = Instant::now();
                watcher(Event::Step {
                    task: self.task,
                    label: printable(label).into_owned(),
                    done,
                    total,
                    text: text(),
                });
            }
        } else if self.shown && since > LINE_EVERY {
            self.last_line = Instant::now();
            tell(&line());
        }
    }

    fn end(&self) {
        if let Some(watcher) = &self.watcher {
            watcher(Event::End { task: self.task });
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn styled(bar: ProgressBar, style: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(style);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Progress of a long task.
pub struct Report {
    display: Display,
    label: String,
    started: Instant,
    first: u64,
    total: u64,
    whole: Whole,
    passes: Passes,
}

/// The bars of this process, so that concurrent bars have separate lines.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A time, in a suitable unit.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} hours", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

impl Report {
    /// Progress of `total` steps, of which `first` are done.
    pub fn new(label: &str, first: u64, total: u64, verbosity: Verbosity) -> Report {
        let bar = || {
            let prefix = printable(label).into_owned();
            let bar = ProgressBar::new(total)
                .with_position(first)
                .with_prefix(prefix);
            // The message is cut to the terminal's width.
            styled(BARS.add(bar), "{prefix} {bar:12} {pos}/{len} {wide_msg}")
        };
        Report {
            display: Display::new(verbosity > Verbosity::Quiet, bar),
            label: label.to_string(),
            started: Instant::now(),
            first,
            total,
            whole: WHOLE.get().unwrap_or(ALONE),
            passes: Passes::default(),
        }
    }

    /// Reports `done` steps, with a message.
    pub fn step(&mut self, done: u64, images_per_step: usize, message: &str) {
        let share = done as f64 / self.total.max(1) as f64;
        self.step_of(done, share, Passes::default(), images_per_step, message);
    }

    /// Reports `done` steps, which are the fraction `share` of all the work, apart from passes, with a message.
    pub fn step_of(
        &mut self,
        done: u64,
        share: f64,
        passes: Passes,
        images_per_step: usize,
        message: &str,
    ) {
        self.passes = passes;
        let rate = (done - self.first) as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let (from, to) = self.whole.part;
        let share = from + share * (to - from);
        let (began, before) = *self.whole.began.get_or_insert((self.started, share));
        // The first step, whose share is not counted, gives no estimate yet.
        let left = match share > before {
            true => {
                let steps = began.elapsed().as_secs_f64() - self.whole.passes - passes.spent;
                duration(steps.max(0.0) * (1.0 - share) / (share - before) + passes.ahead)
            }
            false => "?".into(),
        };
        let speed = rate * images_per_step as f64;
        let text = format!("{left} left, {message}{speed:.0} images/s");
        let line = || format!("{} {done}/{} {text}", self.label, self.total);
        let (counts, last) = ((done, self.total), done == self.total);
        self.display.show((&self.label, &text), counts, last, line);
    }

    /// Prints a permanent line.
    pub fn line(&self, text: &str) {
        let line = format!("{} {text}", self.label);
        match &self.display.bar {
            Some(bar) => bar.println(printable(&line)),
            None if self.display.shown => put(&line),
            None => {}
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let (Some(mut whole), began @ Some(_)) = (WHOLE.get(), self.whole.began) {
            whole.began = began;
            whole.passes += self.passes.spent;
            WHOLE.set(Some(whole));
        }
        self.display.end();
    }
}

/// Progress of file transfers, several at a time and on other threads: on a terminal, one bar for all bytes.
pub struct Transfers(Mutex<Files>);

struct Files {
    display: Display,
    /// Bytes done and total bytes of each file.
    files: BTreeMap<String, (u64, u64)>,
    /// Their sums.
    done: u64,
    total: u64,
}

impl Default for Transfers {
    fn default() -> Transfers {
        let style = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left {msg}";
        Transfers(Mutex::new(Files {
            display: Display::new(shown(), || styled(ProgressBar::new(0), style)),
            files: BTreeMap::new(),
            done: 0,
            total: 0,
        }))
    }
}

impl Transfers {
    /// Reports that `done` of the `total` bytes of a file are transferred.
    pub fn step(&self, file: &str, done: u64, total: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = total.max(done);
        let before = all.files.insert(file.to_owned(), (done, total));
        let (old_done, old_total) = before.unwrap_or_default();
        all.done = all.done + done - old_done;
        all.total = all.total + total - old_total;
        let (done, total) = (all.done, all.total);
        let line = || format!("{file}: {done} of {total} bytes");
        all.display
            .show(("transfer", file), (done, total), false, line);
    }

    /// Ends the bar, with a summary line.
    pub fn finish(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.display.end();
        if all.display.watcher.is_none() && !all.files.is_empty() && all.display.shown {
            tell(&format!("{} files, {} bytes", all.files.len(), all.done));
        }
    }
}

/// True if this thread has a watcher, or this process shows progress.
fn shown() -> bool {
    let verbosity = *VERBOSITY.get().unwrap_or(&Verbosity::Quiet);
    watcher().is_some() || verbosity > Verbosity::Quiet
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
