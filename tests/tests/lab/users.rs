//! The socket file and the configuration say who may be a client and what each user may have.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rnic::{Context, Error, ListenOptions, RefusalCode};
use rnic_ipc::transport::ChannelListener;
use rnic_tests::daemon::{Daemon, configuration};
use rnic_tests::lab::{Family, Host, Lab, LinkOptions};
use rnic_tests::user::run_as;
use rnic_tests::{binary, tool, wait};

const PORT: u16 = 18515;
/// `nobody` of most systems; any user that is not root does.
const NOBODY: u32 = 65_534;

/// A daemon whose configuration ends with these lines, in a directory that everybody may enter.
fn daemon(name: &str, lines: &str) -> (Lab, Daemon, Host) {
    let mut lab = Lab::new(name);
    let (host, _) = lab.pair(&LinkOptions::default());
    let (_, options) = configuration(&lab, lines);
    let daemon = Daemon::start(&lab, &host, &options);
    (lab, daemon, host)
}

fn connect(daemon: &Daemon) -> Result<Context, Error> {
    run_as(NOBODY, || {
        rnic::Daemon::at(daemon.socket()).and_then(|it| it.open(None))
    })
}

#[test]
fn the_files_permissions_and_group_say_who_may_connect() {
    let (_lab, open, _) = daemon("socket-open", "socket_mode = \"0666\"");
    connect(&open).unwrap();
    let (_lab, of_root, _) = daemon("socket-shut", "socket_mode = \"0660\"");
    let refused = connect(&of_root);
    assert!(
        matches!(refused, Err(Error::NotPermitted(_))),
        "{refused:?}"
    );
    let lines = format!("socket_mode = \"0660\"\nsocket_group = {NOBODY}");
    let (_lab, of_group, _) = daemon("socket-group", &lines);
    connect(&of_group).unwrap();
}

#[test]
fn the_daemon_in_another_users_runtime_directory_is_not_used() {
    let mut lab = Lab::new("runtime-directory");
    let (host, _) = lab.pair(&LinkOptions::default());
    let runtime = lab.directory().join("runtime");
    std::fs::create_dir(&runtime).expect("the lab's directory is ours");
    let socket = runtime.join("rnicd.sock");
    let everybodys = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(lab.directory(), everybodys).expect("it is ours");
    std::os::unix::fs::chown(&runtime, Some(NOBODY), Some(NOBODY)).expect("root may");
    let bound = run_as(NOBODY, || ChannelListener::bind(&socket, 1));
    let _listener = bound.expect("the directory is its own");
    let whose = format!("{} is of user {NOBODY}", runtime.display());
    let runtime = format!("XDG_RUNTIME_DIR={}", runtime.display());
    let rnicctl = host.namespace.command("env").label("rnicctl");
    let rnicctl = rnicctl.args(["-u", "RNIC_SOCKET", &runtime]);
    let done = rnicctl.arg(binary::path("rnicctl")).arg("device").run();
    let told = format!("{} (from XDG_RUNTIME_DIR): {whose}", socket.display());
    assert!(done.failure().contains(&told));
}

#[test]
fn a_user_over_its_limit_is_told_which_and_root_is_not_touched() {
    let lines = format!("socket_mode = \"0666\"\n[user.{NOBODY}]\nclients = 2");
    let (_lab, daemon, host) = daemon("user-limit", &lines);
    let _two = [connect(&daemon).unwrap(), connect(&daemon).unwrap()];
    let error = connect(&daemon).unwrap_err().to_string();
    let limit = format!("user {NOBODY}'s limit clients is 2");
    assert!(error.contains(&limit), "{error}");
    assert_eq!(daemon.counter("refused_user_clients"), 1);
    let at = host.address(Family::V4, PORT);
    let _root = tool::server(&daemon, "rnic-ping", at, &[]);
}

#[test]
fn a_port_that_is_not_the_users_is_refused_as_the_kernel_does_and_logged() {
    let (_lab, daemon, host) = daemon("user-port", "socket_mode = \"0666\"");
    let nobody = connect(&daemon).unwrap();
    let refused = nobody.listen(
        host.address(Family::V4, 80),
        ListenOptions::default().backlog(1),
    );
    match refused.unwrap_err() {
        Error::Refused(refusal) => assert_eq!(refusal.code, RefusalCode::NotPermitted, "{refusal}"),
        other => panic!("{other}"),
    }
    let told = format!("uid {NOBODY} gid {NOBODY}) is refused: port 80 asked");
    wait::until(&told, Duration::from_secs(20), || {
        let log = daemon.log();
        let mut lines = log.lines();
        lines.find(|line| line.starts_with("[WARN audit] client ") && line.contains(&told))?;
        Some(())
    });
}

#[test]
fn a_file_with_a_fault_is_told_with_its_place_and_check_tells_what_holds() {
    let mut lab = Lab::new("check");
    let (host, _) = lab.pair(&LinkOptions::default());
    let file = lab.directory().join("rnicd.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let rnicd = host.namespace.command(binary::path("rnicd"));
        rnicd.arg("--config").arg(&file).arg("--check").run()
    };
    let error = check("interface = \"eth0\"\n[limits]\nqueuepairs = 1\n").failure();
    let place = format!("{}:3:1: key `queuepairs` is unknown", file.display());
    assert!(error.starts_with(&place), "{error}");

    let told = check("interface = \"eth0\"\n[user.65534]\nclients = 3\n").success();
    let (_, of_nobody) = told.stdout.split_once("(uid 65534)").expect("it is named");
    let first = of_nobody.lines().nth(1).expect("its limits follow");
    let words: Vec<_> = first.split_whitespace().collect();
    assert_eq!(words, ["clients", "3"], "{}", told.stdout);
}
