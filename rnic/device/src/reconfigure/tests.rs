use std::time::Duration;

use rnic_prm::Credentials;

use crate::{DeviceConfig, DeviceError, Devices, Polling, Presence, Reconfiguring};

const HOW: Reconfiguring = Reconfiguring {
    reopen: false,
    patience: Duration::ZERO,
};

const SOMEBODY: Credentials = Credentials {
    uid: 1000,
    gid: 1000,
    pid: 1,
};

fn open() -> (Devices, DeviceConfig) {
    let config = DeviceConfig::loopback();
    let opened = Devices::open_then(vec![config.clone()], Presence::Required, || {
        Ok::<_, DeviceError>(())
    });
    (opened.unwrap().0, config)
}

#[test]
fn limits_timeouts_and_polling_change() {
    let (devices, mut config) = open();
    assert!(devices.all()[0].connect_client(SOMEBODY).is_ok());
    config.limits.users.others.clients = 0;
    config.polling = Polling::Event;
    config.user_timeout = Duration::from_secs(7);
    devices.reconfigure(&[config], HOW).unwrap();
    assert_eq!(devices.clients_max(SOMEBODY), (256, 0));
    let refusal = devices.all()[0].connect_client(SOMEBODY).unwrap_err();
    assert!(refusal.message.contains("clients is 0"), "{refusal}");
    assert!(devices.are_alive());
    devices.shutdown();
}

#[test]
fn one_thing_that_cannot_change_keeps_all_as_it_was() {
    let (devices, config) = open();
    let mut asked = config.clone();
    asked.limits.users.others.clients = 0;
    asked.limits.clients = 1000;
    asked.frames *= 2;
    asked.user_timeout = Duration::from_millis(1);
    let faults = devices.reconfigure(&[asked], HOW).unwrap_err();
    let [frames, user_timeout, clients] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(frames.contains("another frames"), "{frames}");
    assert!(user_timeout.contains("user timeout"), "{user_timeout}");
    assert!(clients.contains("clients = 1000"), "{clients}");
    assert_eq!(devices.clients_max(SOMEBODY), (256, 64));
    let other = DeviceConfig::new("eth9");
    let faults = devices
        .reconfigure(&[config.clone(), other], HOW)
        .unwrap_err();
    let told = "started without waiting for interfaces";
    assert!(faults[0].contains(told), "{faults:?}");
    let twice = [config.clone(), config.clone()];
    let faults = devices.reconfigure(&twice, HOW).unwrap_err();
    assert!(faults[0].contains("loopback, twice,"), "{faults:?}");
    devices.reconfigure(&[config], HOW).unwrap();
    devices.shutdown();
}

#[test]
fn an_answer_that_is_cut_off_says_so_and_a_shorter_one_is_whole() {
    let answer = |message: String| {
        let code = rnic_ipc::control::RefusalCode::WrongState;
        crate::bounded(rnic_ipc::control::Refusal { code, message }).message
    };
    let whole = "\u{e9}".repeat(1024);
    assert_eq!(answer(whole.clone()), whole);
    let cut = answer(whole + "x");
    assert!(cut.len() <= 2048, "{}", cut.len());
    assert!(cut.ends_with("the daemon's log has all)"), "{cut}");
}
