use std::fs;

use super::*;

/// A directory as the kernel's, of either version, with a group below another.
fn groups(names: &Names, upper: (&str, u64), lower: (&str, u64)) -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    for (below, (limit, used)) in [("all", upper), ("all/ours", lower)] {
        let group = top.path().join(below);
        fs::create_dir(&group).unwrap();
        fs::write(group.join(names.limit), format!("{limit}\n")).unwrap();
        fs::write(group.join(names.used), format!("{used}\n")).unwrap();
        let [inactive, active] = names.caches;
        let statistics = format!("anon 7\n{inactive} 1000\n{active} 200\nslab 5\n");
        fs::write(group.join(STATISTICS), statistics).unwrap();
    }
    top
}

fn first(top: &Path) -> Groups {
    let mounts = format!(
        "24 1 0:21 / /proc rw - proc proc rw\n\
         33 2 0:28 / /elsewhere rw - cgroup cgroup rw,cpu\n\
         36 2 0:31 / {} rw,relatime shared:9 - cgroup cgroup rw,memory\n",
        top.display()
    );
    Groups::of("8:pids:/\n4:memory:/all/ours\n0::/\n", &mounts)
}

fn second(top: &Path) -> Groups {
    let mounts = format!(
        "30 2 0:26 / {} rw shared:4 - cgroup2 cgroup2 rw\n",
        top.display()
    );
    Groups::of("0::/all/ours\n", &mounts)
}

#[test]
fn each_limit_of_the_groups_above_counts_in_both_versions() {
    for (names, find) in [(&FIRST, first as fn(&Path) -> Groups), (&SECOND, second)] {
        let tight_above = groups(names, ("5000", 3000), ("90000", 1000));
        let found = find(tight_above.path());
        // 1200 of what is used can be let go.
        assert_eq!(found.check(3200), Ok(()));
        let why = found.check(3201).unwrap_err();
        assert!(why.contains("/all may have, but 3200 are"), "{why}");
        let tight_below = groups(names, ("90000", 3000), ("5000", 1000));
        let found = find(tight_below.path());
        assert_eq!(found.check(4000), Ok(()));
        let why = found.check(6000).unwrap_err();
        assert!(why.contains("/all/ours"), "{why}");
        // A limit that changes is seen.
        fs::write(
            tight_below.path().join("all/ours").join(names.limit),
            "70000",
        )
        .unwrap();
        assert_eq!(found.check(6000), Ok(()));
    }
}

#[test]
fn without_a_limit_or_without_groups_there_is_room() {
    let unlimited = groups(&SECOND, ("max", 3000), ("max", 1000));
    assert_eq!(second(unlimited.path()).check(u64::MAX), Ok(()));
    assert_eq!(Groups::of("", "").check(u64::MAX), Ok(()));
    assert_eq!(
        Groups::of("0::/../above\n", "1 1 0:1 / /sys rw - cgroup2 c rw\n")
            .0
            .len(),
        0
    );
}

#[test]
fn the_mount_of_a_part_of_the_groups_is_known_by_its_root() {
    let top = groups(&SECOND, ("5000", 0), ("4000", 0));
    let mounts = format!(
        "1 1 0:1 /pod/x {} rw - cgroup2 c rw\n",
        top.path().display()
    );
    let found = Groups::of("0::/pod/x/all/ours\n", &mounts);
    assert!(found.check(4001).is_err());
    assert_eq!(found.check(4000), Ok(()));
}
