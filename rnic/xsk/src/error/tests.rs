use super::*;

#[test]
fn every_refusal_names_the_place_what_was_asked_and_a_way_out() {
    let request = || Request {
        place: Some(("eth7".into(), 3)),
        asked: "bind a socket".into(),
    };
    for (errno, advice) in [
        (libc::ENODEV, "ip link"),
        (libc::EPERM, "CAP_NET_RAW"),
        (libc::EACCES, "CAP_NET_RAW"),
        (libc::ENOBUFS, "ulimit -l"),
        (libc::ENOMEM, "ulimit -l"),
        (libc::EOPNOTSUPP, "copy mode"),
        (libc::EAFNOSUPPORT, "CONFIG_XDP_SOCKETS"),
        (libc::EBUSY, "ss"),
        (libc::ENETDOWN, "up"),
        (libc::EINVAL, "ethtool -l"),
        (libc::EIO, "os error 5"),
    ] {
        let message = from_errno(request(), errno).to_string();
        assert!(
            message.starts_with("interface eth7, queue 3: bind a socket: "),
            "{errno}: {message}"
        );
        assert!(message.contains(advice), "{errno}: {message}");
    }
}

#[test]
fn the_kernels_answer_is_found_below_what_wraps_it() {
    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] io::Error);
    let request = Request {
        place: None,
        asked: "a UMEM".into(),
    };
    let error = refusal(request, &Wrapped(io::Error::from_raw_os_error(libc::EPERM)));
    assert!(matches!(error, XskError::NoPrivilege { .. }), "{error}");
}
