//! Free memory of this process.

use std::fs;
use std::path::Path;

/// Bytes free for this process, where the system reports them: of the machine, and within the limits of
/// its control groups.
pub fn available() -> Option<u64> {
    free(&|path| fs::read_to_string(path).ok())
}

/// [`available`], from files that `read` reads.
fn free(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    });
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| of_group(line, read));
    groups.chain(machine).min()
}

/// Files of a version of control groups: their directory, limit, use, and the line of `memory.stat`
/// that counts cached files, which are dropped when memory runs short.
type Files = (&'static str, &'static str, &'static str, &'static str);

const VERSION_1: Files = (
    "/sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
);
const VERSION_2: Files = (
    "/sys/fs/cgroup",
    "memory.max",
    "memory.current",
    "inactive_file",
);

/// The least memory free in a group of `/proc/self/cgroup` and those above it.
fn of_group(line: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let (root, limit, used, cached) = match controllers {
        "" => VERSION_2,
        some if some.split(',').any(|c| c == "memory") => VERSION_1,
        _ => return None,
    };
    // In a container the path may be the machine's; then only the root exists.
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let free = groups.filter_map(|group| {
        let dir = Path::new(root).join(group);
        let number = |name: &str| read(&dir.join(name))?.trim().parse::<u64>().ok();
        let stat = read(&dir.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == cached).then(|| value.trim().parse::<u64>().ok())?
        });
        let used = number(used)?.saturating_sub(cached.unwrap_or(0));
        Some(number(limit)?.saturating_sub(used))
    });
    free.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Option<u64> {
        free(&|path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| text.to_string())
        })
    }

    const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8 kB\n");

    #[test]
    fn the_least_of_machine_and_groups_is_free() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[MACHINE]), Some(8192));
        let two = [
            MACHINE,
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "6000\n"),
            ("/sys/fs/cgroup/a/memory.current", "3000\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 1\ninactive_file 500\n",
            ),
        ];
        assert_eq!(of(&two), Some(3500));
        let one = [
            MACHINE,
            (
                "/proc/self/cgroup",
                "9:name=systemd:/\n4:memory:/not/here\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
        ];
        assert_eq!(of(&one), Some(6000));
    }
}
