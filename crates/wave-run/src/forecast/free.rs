//! Memory of this process, as the system reports it.

use std::fs;
use std::path::Path;

/// Bytes free for this process, if the system reports them: of the machine, within the limits of its control
/// groups, and within its own (`ulimit -v`, `ulimit -d`).
pub fn available() -> Option<u64> {
    free(&|path| fs::read_to_string(path).ok())
}

/// Bytes free on the disk where `path` is, or is to be.
#[cfg(unix)]
pub fn on_disk(path: &Path) -> Option<u64> {
    let path = crate::paths::resolve(path);
    let existing = path.ancestors().find(|place| place.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Not known on other systems.
#[cfg(not(unix))]
pub fn on_disk(_: &Path) -> Option<u64> {
    None
}

/// [`available`], from files that `read` reads.
fn free(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo"));
    let machine = machine.and_then(|text| Some(1024 * number_after("MemAvailable:", &text)?));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| of_group(line, read));
    groups.chain(machine).chain(of_process(read)).min()
}

/// The least memory that the process may still allocate by its own limits.
fn of_process(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = read(Path::new("/proc/self/limits"))?;
    let status = read(Path::new("/proc/self/status"))?;
    let left = |(limit, used): (&str, &str)| {
        let used = number_after(used, &status)?.saturating_mul(1024);
        Some(number_after(limit, &limits)?.saturating_sub(used)) // "unlimited" is no number
    };
    let both = [
        ("Max address space", "VmSize:"),
        ("Max data size", "VmData:"),
    ];
    both.into_iter().filter_map(left).min()
}

/// The least free memory of a cgroup in `/proc/self/cgroup` and its parents.
fn of_group(line: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    // Directory, limit, use, and the line of `memory.stat` that counts cached files, which are dropped when memory runs
    // short.
    let (root, limit, used, cached) = match controllers {
        "" => (
            "/sys/fs/cgroup",
            "memory.max",
            "memory.current",
            "inactive_file",
        ),
        some if some.split(',').any(|c| c == "memory") => (
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
        _ => return None,
    };
    // In a container the path may be the machine's; then only the root exists.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let free = groups.filter_map(|group| {
        let dir = Path::new(root).join(group);
        let number = |name: &str| read(&dir.join(name))?.trim().parse::<u64>().ok();
        let stat = read(&dir.join("memory.stat")).unwrap_or_default();
        let cached = number_after(cached, &stat).unwrap_or(0);
        let used = number(used)?.saturating_sub(cached);
        Some(number(limit)?.saturating_sub(used))
    });
    free.min()
}

/// Peak memory of this process in bytes, where the system reports it.
pub fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(1024 * number_after("VmHWM:", &status)?)
}

/// The number after `name` on the line that begins with it.
fn number_after(name: &str, text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
#[path = "free_tests.rs"]
mod tests;
