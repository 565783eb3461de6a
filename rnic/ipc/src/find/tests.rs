use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::transport::ChannelListener;

fn variables<'a>(
    socket: Option<&'a str>,
    runtime: Option<&'a str>,
) -> impl Fn(&str) -> Option<OsString> + 'a {
    move |name| match name {
        SOCKET_VARIABLE => socket.map(OsString::from),
        RUNTIME_VARIABLE => runtime.map(OsString::from),
        other => panic!("{other} is not asked for"),
    }
}

fn paths(places: &[Place]) -> Vec<&str> {
    let paths = places.iter().map(|place| place.path.to_str());
    paths.map(Option::unwrap).collect()
}

fn at(path: &Path) -> Place {
    Place::new(path, Origin::Runtime)
}

#[test]
fn what_the_command_line_names_is_the_only_place() {
    let all = variables(Some("/variable"), Some("/run/user/7"));
    assert_eq!(
        paths(&places_of(Some(Path::new("/named")), all)),
        ["/named"]
    );
}

#[test]
fn what_the_variable_names_is_the_only_place() {
    let all = variables(Some("/variable"), Some("/run/user/7"));
    assert_eq!(paths(&places_of(None, all)), ["/variable"]);
}

#[test]
fn without_a_name_the_users_own_daemon_comes_before_the_hosts() {
    let found = places_of(None, variables(Some(""), Some("/run/user/7")));
    assert_eq!(paths(&found), ["/run/user/7/rnicd.sock", DEFAULT_SOCKET]);
}

#[test]
fn a_runtime_directory_that_is_unset_empty_or_relative_is_none() {
    for runtime in [None, Some(""), Some("run/user/7")] {
        let found = places_of(None, variables(None, runtime));
        assert_eq!(paths(&found), [DEFAULT_SOCKET], "{runtime:?}");
    }
}

#[test]
fn the_first_place_that_answers_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let [absent, dead, live, second] =
        ["absent", "dead", "live", "second"].map(|name| directory.path().join(name));
    drop(ChannelListener::bind(&dead, 1).unwrap());
    let _live = ChannelListener::bind(&live, 1).unwrap();
    let _second = ChannelListener::bind(&second, 1).unwrap();
    let all = [&absent, &dead, &live, &second].map(|path| at(path));
    let (_, found) = connect(all.to_vec()).unwrap();
    assert_eq!(found, live);
}

#[test]
fn the_error_names_every_place_and_why_each_failed() {
    let directory = tempfile::tempdir().unwrap();
    let [absent, dead] = ["absent", "dead"].map(|name| directory.path().join(name));
    drop(ChannelListener::bind(&dead, 1).unwrap());
    let error = connect(vec![at(&absent), at(&dead)]).unwrap_err();
    let told = error.to_string();
    for part in [
        format!(
            "{} (from XDG_RUNTIME_DIR): no such socket",
            absent.display()
        ),
        format!(
            "{} (from XDG_RUNTIME_DIR): the socket is there",
            dead.display()
        ),
        "rnic-run".to_owned(),
    ] {
        assert!(told.contains(&part), "{part}: {told}");
    }
}

#[test]
fn a_socket_that_this_user_may_not_use_is_told_apart() {
    let forbidden = Tried {
        place: Place::new("/x", Origin::Named),
        fault: Fault::Kernel(Errno::ACCESS),
    };
    assert!(forbidden.is_forbidden());
    let tried = vec![forbidden];
    let told = NotFound { tried }.to_string();
    assert!(
        told.contains("/x: this user may not use the socket; "),
        "{told}"
    );
    // There is a daemon: another one is not what helps.
    assert!(!told.contains("rnicd --interface"), "{told}");
}

#[test]
fn a_daemon_is_this_users_or_roots_or_where_one_of_them_put_it() {
    let others = Authority::Others;
    assert!(is_trusted(1000, 1000, &others));
    assert!(is_trusted(0, 1000, &others));
    assert!(is_trusted(0, 0, &others));
    assert!(!is_trusted(1000, 0, &others));
    assert!(!is_trusted(1000, 1001, &others));
    assert!(is_trusted(995, 0, &Authority::Own("/x".into())));
    let service = |owner| Authority::Service {
        path: "/run/rnicd/rnicd.sock".into(),
        owner,
    };
    assert!(is_trusted(995, 1000, &service(995)));
    assert!(is_trusted(995, 1000, &service(0)));
    assert!(!is_trusted(996, 1000, &service(995)));
}

#[test]
fn a_runtime_directory_that_others_can_write_to_is_refused_with_what_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(SOCKET_NAME);
    let _live = ChannelListener::bind(&socket, 1).unwrap();
    connect(vec![at(&socket)]).unwrap();
    for mode in [0o770, 0o707, 0o1777] {
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(mode)).unwrap();
        let told = connect(vec![at(&socket)]).unwrap_err().to_string();
        let found = format!("with mode {mode:04o}");
        for part in [
            &*found,
            "XDG_RUNTIME_DIR",
            &directory.path().to_string_lossy(),
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
