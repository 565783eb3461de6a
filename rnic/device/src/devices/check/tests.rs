use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rnic_host::HostError;

use super::*;

/// What a thread finds that has no more than these capabilities.
fn faults_with(
    kept: CapabilitySet,
    config: &DeviceConfig,
    on_missing: OnMissing,
) -> Vec<DeviceError> {
    std::thread::scope(|scope| {
        let checked = scope.spawn(|| {
            privileges::keep(kept).expect("capabilities can be given up");
            Devices::check(std::slice::from_ref(config), on_missing)
        });
        checked.join().expect("no panic")
    })
}

fn without_any(config: &DeviceConfig) -> Vec<DeviceError> {
    faults_with(CapabilitySet::empty(), config, OnMissing::Wait)
}

/// An interface of which nobody has one.
fn absent() -> DeviceConfig {
    DeviceConfig::new("nosuch0".to_owned())
}

fn captured_to(path: &Path) -> DeviceConfig {
    DeviceConfig {
        capture: Some(path.to_owned()),
        ..DeviceConfig::loopback()
    }
}

#[test]
fn missing_capabilities_are_named_and_others_are_not() {
    let faults = without_any(&absent());
    let [
        DeviceError::NoCapabilities {
            missing,
            interfaces,
        },
        ..,
    ] = &faults[..]
    else {
        panic!("{faults:?}");
    };
    assert_eq!(interfaces, &["nosuch0"]);
    let mut missing = missing.clone();
    missing.sort();
    assert_eq!(
        missing,
        ["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_PERFMON"]
    );
    let only = privilege_faults(
        vec!["eth0".to_owned()],
        CapabilitySet::BPF | CapabilitySet::IPC_LOCK,
        1,
        None,
    );
    let told: Vec<_> = only.iter().map(DeviceError::to_string).collect();
    assert_eq!(
        told,
        [
            "interface eth0 asked, which needs capabilities that this process is without, CAP_BPF: run as \
             root, or give it these (AmbientCapabilities= in a systemd unit)"
        ]
    );
}

#[test]
fn locked_memory_is_a_fault_above_the_limit_and_without_the_capability_alone() {
    let is_fault = |missing, asked, allowed| {
        let faults = privilege_faults(vec!["eth0".to_owned()], missing, asked, allowed);
        matches!(faults[..], [DeviceError::LockedMemory { .. }])
    };
    let missing = CapabilitySet::IPC_LOCK;
    assert!(is_fault(missing, 8193, Some(8192)));
    assert!(!is_fault(missing, 8192, Some(8192)));
    assert!(!is_fault(missing, 8193, None));
    assert!(!is_fault(CapabilitySet::empty(), 8193, Some(8192)));
}

#[test]
fn the_loopback_alone_needs_nothing() {
    let faults = without_any(&DeviceConfig::loopback());
    assert!(faults.is_empty(), "{faults:?}");
}

#[test]
fn an_absent_interface_is_a_fault_where_it_is_not_waited_for() {
    let is_told = |on_missing| {
        let faults = faults_with(CapabilitySet::all(), &absent(), on_missing);
        let mut faults = faults.iter();
        faults.any(|fault| {
            matches!(
                fault,
                DeviceError::Interface(HostError::UnknownInterface { .. })
            )
        })
    };
    assert!(is_told(OnMissing::Fail));
    assert!(!is_told(OnMissing::Wait));
}

#[test]
fn a_capture_that_cannot_be_written_is_told_and_none_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let cause = |path: &Path| match &without_any(&captured_to(path))[..] {
        [] => None,
        [DeviceError::Capture { cause, .. }] => Some(cause.kind()),
        other => panic!("{other:?}"),
    };
    let file = directory.path().join("a.pcapng");
    assert_eq!(cause(&file), None);
    assert!(!file.exists());
    fs::write(&file, "kept").unwrap();
    assert_eq!(cause(&file), None);
    assert_eq!(fs::read(&file).unwrap(), b"kept");

    let nowhere = directory.path().join("none/a.pcapng");
    assert_eq!(cause(&nowhere), Some(std::io::ErrorKind::NotFound));
    let a_directory = directory.path();
    assert_eq!(cause(a_directory), Some(std::io::ErrorKind::IsADirectory));
    let denied = Some(std::io::ErrorKind::PermissionDenied);
    // It is replaced where that is possible.
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    assert_eq!(cause(&file), None);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
    assert_eq!(cause(&file), denied);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(cause(&file), None);
    assert_eq!(cause(&directory.path().join("b.pcapng")), denied);
}

#[test]
fn every_fault_is_told_not_the_first_alone() {
    let config = DeviceConfig {
        capture: Some("/nonexistent/a.pcapng".into()),
        user_timeout: std::time::Duration::ZERO,
        ..absent()
    };
    let faults = faults_with(CapabilitySet::empty(), &config, OnMissing::Fail);
    let told: Vec<_> = faults.iter().map(DeviceError::to_string).collect();
    let told = told.join("\n");
    for words in [
        "user timeout",
        "/nonexistent/a.pcapng",
        "no such interface",
        "CAP_NET_RAW",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}
