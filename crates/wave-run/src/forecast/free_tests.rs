use super::*;

fn of(files: &[(&str, &str)]) -> Option<u64> {
    free(&|path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found.map(|(_, text)| text.to_string())
    })
}

const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    8 kB\n");

#[test]
fn the_process_has_limits_of_its_own() {
    let limits = |space: &str, data: &str| {
        format!(
            "Max data size             {data:<20} unlimited            bytes     \n\
             Max address space         {space:<20} unlimited            bytes     \n"
        )
    };
    let used = "Name:\twave\nVmSize:\t       3 kB\nVmData:\t       1 kB\n";
    let status = ("/proc/self/status", used);
    for (space, data, expected) in [
        ("unlimited", "unlimited", 8192),
        ("7168", "unlimited", 4096),
        ("7168", "3072", 2048),
        ("100", "unlimited", 0),
    ] {
        let limits = limits(space, data);
        let files = [MACHINE, ("/proc/self/limits", &*limits), status];
        assert_eq!(of(&files), Some(expected), "{space} {data}");
    }
}

#[test]
fn the_least_of_machine_and_groups_is_free() {
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[MACHINE]), Some(8192));
    let stat = "anon 1\ninactive_file 500\n";
    let two = [
        MACHINE,
        ("/proc/self/cgroup", "0::/a/b\n"),
        ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/a/memory.max", "6000\n"),
        ("/sys/fs/cgroup/a/memory.current", "3000\n"),
        ("/sys/fs/cgroup/a/memory.stat", stat),
    ];
    assert_eq!(of(&two), Some(3500));
    let groups = "9:name=systemd:/\n4:memory:/not/here\n";
    let one = [
        MACHINE,
        ("/proc/self/cgroup", groups),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
    ];
    assert_eq!(of(&one), Some(6000));
}
