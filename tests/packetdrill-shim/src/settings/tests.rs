use super::*;

#[test]
fn flags_are_read_one_by_one() {
    let settings = Settings::parse("cc=reno, mtu=1280,timestamps=off,local=2001:db8::7").unwrap();
    assert_eq!(settings.config.congestion, CongestionControl::NewReno);
    assert_eq!(settings.config.mss, 1240);
    assert!(!settings.config.timestamps);
    assert_eq!(settings.local_v6.to_string(), "2001:db8::7");
    assert_eq!(settings.local_v4.to_string(), "192.168.0.1");
}

#[test]
fn a_flag_that_means_nothing_is_named() {
    for flags in [
        "color=red",
        "mtu=12",
        "cc=vegas",
        "timestamps=perhaps",
        "ack_delay_ms=501",
    ] {
        let told = Settings::parse(flags).unwrap_err();
        assert!(told.contains(flags), "{told}");
    }
}
