//! A file means what it says, and what is wrong with it is said at its place.

use rnic_device::{Configured, Credentials, DeviceConfig, Resource, ShardCount};

use super::*;
use crate::settings::Values;

fn sound(text: &str) -> File {
    parse(Path::new("t.toml"), text).unwrap_or_else(|error| panic!("{error}"))
}

/// The faults of a file, each as it is printed.
fn faults(text: &str) -> Vec<String> {
    match parse(Path::new("t.toml"), text) {
        Err(ConfigError::Faults(faults)) => faults.iter().map(Fault::to_string).collect(),
        other => panic!("no faults in {text:?}: {other:?}"),
    }
}

#[track_caller]
fn fault(text: &str, place: &str, words: &[&str]) {
    let found = faults(text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(&format!("t.toml:{place}: ")),
        "not at {place}: {found:?}"
    );
    for word in words {
        assert!(found[0].contains(word), "no {word} in {found:?}");
    }
}

const ROOT: Credentials = Credentials {
    uid: 0,
    gid: 0,
    pid: 1,
    superuser: true,
};
const SOMEBODY: Credentials = Credentials {
    uid: 4_000_000,
    gid: 4_000_000,
    pid: 1,
    superuser: false,
};

#[test]
fn an_empty_file_says_nothing() {
    let file = sound("");
    assert_eq!(file.given, Given::default());
    assert_eq!(file.limits, Limits::default());
}

#[test]
fn every_setting_of_the_command_line_can_be_in_the_file() {
    let file = sound(
        r#"
        interface = "eth0"
        socket = "/run/rnic/rnicd.sock"
        socket_mode = "0666"
        socket_group = "root"
        admin_group = 44
        capture = "a.pcapng"
        shards = 2
        cores = "0-1"
        queues = 2
        dedicated_queues = "0-1"
        mode = "generic"
        frames = 8_192
        polling = "adaptive"
        idle_spin = 7
        busy_poll = 9
        syn_rate = 3
        unknown_flow_rate = 2
        fragment_rate = 0
        user_timeout = 5000
        first_byte_timeout = 500
        answer_timeout = 7000
        receive_wait = "forever"
        keepalive_idle = 30
        keepalive_interval = 5
        keepalive_probes = 4
        congestion = "bbr"
        sctp_udp_port = 9899
        sctp_udp_peer_port = 9900
        host_ipsec = "ignore"
        no_loopback = true
        no_wait = true
        no_seccomp = true
        metrics = "127.0.0.1:9400"
        drain = 1500
        log = "debug"
        "#,
    );
    let expected = Given {
        interface: Vec::new(),
        own: Values::of::<DaemonConfig>(&[
            ("socket", "/run/rnic/rnicd.sock"),
            ("socket_mode", "0666"),
            ("socket_group", "root"),
            ("admin_group", "44"),
            ("no_loopback", "true"),
            ("no_wait", "true"),
            ("no_seccomp", "true"),
            ("metrics", "127.0.0.1:9400"),
            ("drain", "1500"),
            ("log", "debug"),
        ]),
        link: Values::of::<DeviceConfig>(&[
            ("capture", "a.pcapng"),
            ("shards", "2"),
            ("cores", "0-1"),
            ("queues", "2"),
            ("dedicated_queues", "0-1"),
            ("mode", "generic"),
            ("frames", "8192"),
            ("polling", "adaptive"),
            ("idle_spin", "7"),
            ("busy_poll", "9"),
            ("syn_rate", "3"),
            ("unknown_flow_rate", "2"),
            ("fragment_rate", "0"),
            ("user_timeout", "5000"),
            ("first_byte_timeout", "500"),
            ("answer_timeout", "7000"),
            ("receive_wait", "forever"),
            ("keepalive_idle", "30"),
            ("keepalive_interval", "5"),
            ("keepalive_probes", "4"),
            ("congestion", "bbr"),
            ("sctp_udp_port", "9899"),
            ("sctp_udp_peer_port", "9900"),
            ("host_ipsec", "ignore"),
        ]),
    };
    assert_eq!(DeviceConfig::SETTINGS.len(), 24, "all are in this file");
    assert_eq!(file.given, expected);
    assert_eq!(names(&file), ["eth0"]);
}

fn names(file: &File) -> Vec<&str> {
    file.interfaces.iter().map(|one| &*one.name).collect()
}

#[test]
fn interfaces_are_named_by_a_list_or_by_a_table_each() {
    assert_eq!(
        names(&sound(
            "interface = ['eth0', { name = 'eth1', frames = 9 }]"
        )),
        ["eth0", "eth1"]
    );
    let tables = sound("[[interface]]\nname = 'a'\nqueues = 3\n[[interface]]\nname = 'b'\n");
    assert_eq!(names(&tables), ["a", "b"]);
    assert_eq!(
        tables.interfaces[0].link,
        Values::of::<DeviceConfig>(&[("queues", "3")])
    );
    assert_eq!(tables.interfaces[1].link, Values::default());
    fault("interface = 7", "1:13", &["integer", "name"]);
    fault("interface = ['a', 'b', 'a']", "1:24", &["a", "twice"]);
    fault("[[interface]]\nqueues = 1\n", "1:1", &["`name`"]);
    let text = "[[interface]]\nname = 'a'\nsocket = 'b'\n";
    fault(text, "3:1", &["`socket`", "busy_poll"]);
    let vlan = |text: &str| format!("[[interface]]\nname = 'a'\n[[interface.vlan]]\n{text}\n");
    let sound = sound(&vlan(
        "id = 7\naddresses = ['198.18.7.0/24', '2001:db8::1']",
    ));
    let [found] = &sound.interfaces[0].vlans[..] else {
        panic!("{sound:?}");
    };
    assert_eq!((found.id.tag(), found.addresses.len()), (7, 2));
    fault(
        &vlan("id = 4095\ninterface = 'b'").replace("\n[[", "\n\n[["),
        "5:6",
        &["4094"],
    );
    fault(
        &vlan("id = 7\naddresses = ['b']"),
        "5:14",
        &["\"b\"", "network"],
    );
    fault(&vlan("id = 7"), "3:1", &["`addresses`"]);
    let text = "[[interface]]\nname = 'a'\nqueues = 0\n";
    fault(text, "3:10", &["`queues` is 0"]);
}

#[test]
fn every_limit_can_be_set_for_the_device_a_client_and_a_user() {
    let mut text = String::new();
    for (table, limit) in [("limits", 3), ("limits.client", 1), ("limits.user", 2)] {
        text += &format!("[{table}]\n");
        for resource in Resource::ALL {
            text += &format!("{} = {limit}\n", resource.name());
        }
    }
    let limits = sound(&text).limits;
    for resource in Resource::ALL {
        assert_eq!(limits.device.get(resource), 3, "{resource:?}");
        assert_eq!(limits.per_client.get(resource), 1, "{resource:?}");
        assert_eq!(limits.users.others.quota.get(resource), 2, "{resource:?}");
    }
    let limits = sound(
        "[limits]\nclients = 9\nqueue_depth = 8\ncq_depth = 7\nsges = 6\ninline_bytes = 5\n\
         backlog = 4\n",
    )
    .limits;
    let found = [
        limits.clients,
        limits.queue_depth,
        limits.cq_depth,
        limits.sges,
        limits.inline_bytes,
        limits.backlog,
    ];
    assert_eq!(found, [9, 8, 7, 6, 5, 4]);
}

#[test]
fn users_and_groups_have_the_others_limits_where_nothing_is_said_of_them() {
    let users = sound(
        r#"
        [limits.user]
        clients = 5
        queue_pairs = 50
        [user.4000000]
        clients = 6
        listen_ports = [7471, "18515-18600"]
        [group.4000001]
        connects_per_second = 3
        "#,
    )
    .limits
    .users;
    let somebody = users.of(SOMEBODY);
    assert_eq!(somebody.clients, 6);
    assert_eq!(somebody.quota.queue_pairs, 50);
    assert_eq!(somebody.listen_ports.to_string(), "7471, 18515-18600");
    let of_group = users.of(Credentials {
        uid: 9,
        gid: 4_000_001,
        pid: 1,
        superuser: false,
    });
    assert_eq!(of_group.clients, 5);
    assert_eq!(of_group.connects_per_second, 3);
    // Root is named by itself: it may listen everywhere.
    let root = users.of(ROOT);
    assert_eq!(root.clients, 5);
    assert!(root.listen_ports.contains(1));
    assert!(!users.others.listen_ports.contains(1));
}

#[test]
fn memory_in_no_memfd_is_for_nobody_else_unless_the_file_says_so() {
    let of = |text: &str, credentials| {
        let users = sound(text).limits.users;
        let limits = users.of(credentials);
        (limits.quota.remote_regions, limits.own_remote_regions)
    };
    assert_eq!(of("", SOMEBODY), (0, 64));
    assert_eq!(of("", ROOT), (0, 64));
    let all = "[limits.user]\nremote_regions = 3";
    assert_eq!(of(all, SOMEBODY), (3, 3));
    assert_eq!(of(all, ROOT), (3, 3));
    let root = "[user.root]\nremote_regions = 0";
    assert_eq!((of(root, ROOT), of(root, SOMEBODY)), ((0, 0), (0, 64)));
}

#[test]
fn names_are_looked_up() {
    let users = sound("[user.root]\nclients = 1\n[group.root]\nclients = 2")
        .limits
        .users;
    assert_eq!(users.of(ROOT).clients, 1);
    assert_eq!(users.by_gid[&0].clients, 2);
    let unknown = "[user.nobody-has-this-name]\nclients = 1";
    fault(unknown, "1:7", &["no user nobody-has-this-name", "number"]);
    let twice = "[user.root]\nclients = 1\n[user.0]\nclients = 2";
    let found = faults(twice);
    assert!(found[0].contains("named before"), "{found:?}");
}

fn allows(list: Option<&AllowList>, peer: &str) -> bool {
    list.is_none_or(|list| list.contains(peer.parse().unwrap()))
}

#[test]
fn allow_lists_are_of_interfaces_users_groups_and_listeners() {
    let file = sound(
        r#"
        allowed_peers = ["198.18.0.0/15", "2001:db8::/32"]
        [[interface]]
        name = "eth0"
        allowed_peers = []
        [[interface]]
        name = "eth1"
        [limits.user]
        allowed_peers = ["198.18.0.0/24"]
        [user.4000000]
        allowed_peers = ["198.18.1.7"]
        [group.44]
        clients = 1
        [[listener]]
        address = ":7471"
        allowed_peers = ["198.18.2.0/24"]
        [[listener]]
        address = "[2001:db8::1]:7471"
        allowed_peers = ["2001:db8::/64"]
        "#,
    );
    let of_all = file.allowed_peers.as_ref();
    assert!(allows(of_all, "198.19.0.1") && allows(of_all, "2001:db8:7::1"));
    assert!(!allows(of_all, "203.0.113.1"));
    let [eth0, eth1] = &file.interfaces[..] else {
        panic!("{file:?}");
    };
    assert!(!allows(eth0.allowed_peers.as_ref(), "198.18.0.1"));
    assert_eq!(eth1.allowed_peers, None);
    let users = &file.limits.users;
    let of = |credentials| users.of(credentials).allowed_peers.as_ref();
    assert!(allows(of(SOMEBODY), "198.18.1.7") && !allows(of(SOMEBODY), "198.18.1.8"));
    // What root and groups do not say is as for others.
    let inherited = [of(ROOT), users.by_gid[&44].allowed_peers.as_ref()];
    assert_eq!(inherited, [users.others.allowed_peers.as_ref(); 2]);
    assert!(allows(of(ROOT), "198.18.0.9") && !allows(of(ROOT), "198.18.1.7"));
    let listeners: Vec<_> = file.limits.listener_peers.iter().collect();
    let named: Vec<_> = listeners
        .iter()
        .map(|one| format!("{}: {}", one.at, one.allowed))
        .collect();
    let told = [":7471: 198.18.2.0/24", "[2001:db8::1]:7471: 2001:db8::/64"];
    assert_eq!(named, told);
}

#[test]
fn faults_of_allow_lists_are_told_at_their_places() {
    let network = "a network such as 198.18.7.0/24";
    fault("allowed_peers = '198.18.0.0/15'", "1:17", &["a list"]);
    fault(
        "allowed_peers = ['::1', 'host']",
        "1:25",
        &["\"host\"", network],
    );
    fault("allowed_peers = ['198.18.0.0/33']", "1:18", &[network]);
    let many = format!("allowed_peers = [{}]", "'::1', ".repeat(257));
    fault(&many, "1:17", &["257 networks", "at most 256"]);
    fault("[user.0]\nallowed_peers = [1]", "2:18", &["a string"]);
    let listener = |lines: &str| format!("[[listener]]\n{lines}");
    fault(
        &listener("address = ':7471'"),
        "1:1",
        &["without its `allowed_peers`"],
    );
    fault(
        &listener("allowed_peers = []"),
        "1:1",
        &["without its `address`"],
    );
    let wrong = listener("address = '0.0.0.0:7471'\nallowed_peers = []");
    fault(&wrong, "2:11", &["or :7471 for every address"]);
    fault(
        &listener("address = ':1'\nallowed_peers = []\nport = 1"),
        "4:1",
        &["`port`", "address, allowed_peers"],
    );
    let one = listener("address = ':1'\nallowed_peers = []\n");
    fault(&one.repeat(2), "4:1", &["listener :1 is named twice"]);
    fault("listener = 1", "1:12", &["a list"]);
    let many: String = (1..=257)
        .map(|port| listener(&format!("address = ':{port}'\nallowed_peers = []\n")))
        .collect();
    fault(&many, "1:1", &["257 listeners", "at most 256"]);
}

#[test]
fn the_sample_says_every_default() {
    let sample = include_str!("../../rnicd.toml");
    let file = sound(sample);
    assert_eq!(file.limits, Limits::default());
    let (mut own, mut link) = (DaemonConfig::defaults(), DeviceConfig::new(""));
    file.given.own.apply(&mut own);
    file.given.link.apply(&mut link);
    for setting in DaemonConfig::SETTINGS {
        assert_eq!((setting.show)(&own), setting.default(), "{}", setting.name);
    }
    for setting in DeviceConfig::SETTINGS {
        assert_eq!((setting.show)(&link), setting.default(), "{}", setting.name);
    }
    for table in ["[limits]", "[limits.client]", "[limits.user]"] {
        let text = sample.split(table).nth(1).expect("the table is there");
        let text = text.split("\n[").next().unwrap_or_default();
        // `remote_regions` of users has no one default: it is mentioned.
        let text = text.replace("\n# ", "\n");
        for resource in Resource::ALL {
            let key = format!("\n{} = ", resource.name());
            assert!(text.contains(&key), "{table} does not name {key}");
        }
    }
    for key in keys() {
        assert!(sample.contains(key), "the sample does not name {key}");
    }
}

#[test]
fn the_manual_names_every_key() {
    let manual = include_str!("../../../../dist/rnicd.toml.5");
    let words: Vec<_> = manual
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let sample = include_str!("../../rnicd.toml");
    // Also those that it only mentions: `# key = `, `key = `.
    let keys = sample.lines().filter_map(|line| {
        let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
        key.bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_')
            .then_some(key)
    });
    let all: Vec<_> = keys.chain(super::keys()).collect();
    assert!(all.len() > 80, "{all:?}");
    for key in all {
        assert!(words.contains(&key), "rnicd.toml(5) does not name {key}");
    }
}

#[test]
fn an_unknown_key_is_a_fault_and_the_known_ones_are_told() {
    fault(
        "interfaces = \"eth0\"",
        "1:1",
        &["`interfaces`", "interface, socket"],
    );
    fault(
        "\n\n  [limit]\n",
        "3:4",
        &["`limit`", "limits, user, group"],
    );
    fault(
        "[limits]\nqueuepairs = 1",
        "2:1",
        &["`queuepairs`", "queue_pairs"],
    );
    fault("[limits.client]\nclients = 1", "2:1", &["`clients`"]);
    fault(
        "[user.0]\nqueue_depth = 1",
        "2:1",
        &["`queue_depth`", "listen_ports"],
    );
}

#[test]
fn a_value_that_can_not_be_is_told_with_what_can() {
    fault("queues = 0", "1:10", &["`queues` is 0", "1 to 4294967295"]);
    fault("frames = \"many\"", "1:10", &["type string", "an integer"]);
    fault("socket = 5", "1:10", &["type integer", "a string"]);
    fault("socket_mode = \"rw\"", "1:15", &["\"rw\"", "0660"]);
    fault("log = 'loud'", "1:7", &["\"loud\"", "debug"]);
    fault("mode = \"fast\"", "1:8", &["native"]);
    fault("polling = \"always\"", "1:11", &["spin, adaptive or event"]);
    fault("limits = 1", "1:10", &["a table"]);
    let (least, most) = ("1000 to 86400000", "`user_timeout` is 999");
    fault("user_timeout = 999", "1:16", &[least, most]);
    fault("first_byte_timeout = 99", "1:22", &["100 to 10000"]);
    fault("answer_timeout = 999", "1:18", &["1000 to 3600000"]);
    fault("keepalive_idle = 32768", "1:18", &["0 to 32767"]);
    fault("keepalive_interval = 0", "1:22", &["1 to 32767"]);
    fault("keepalive_probes = 128", "1:20", &["1 to 127"]);
    fault("host_ipsec = 'off'", "1:14", &["refuse or ignore"]);
    fault(
        "congestion = 'vegas'",
        "1:14",
        &["cubic, newreno, dctcp or bbr"],
    );
    fault("[limits]\nsges = 33", "2:8", &["`sges` is 33", "1 to 32"]);
    fault(
        "[limits]\nqueue_pairs = -1",
        "2:15",
        &["is -1", "0 to 65536"],
    );
    let wrong_ports = "[limits.user]\nlisten_ports = [1, \"9-3\"]";
    fault(wrong_ports, "2:20", &["\"9-3\"", "18515-18600"]);
    fault(
        "[limits.user]\nlisten_ports = [0]",
        "2:17",
        &["is 0", "1 to 65535"],
    );
    fault("[limits.user]\nlisten_ports = 7", "2:16", &["a list"]);
}

#[test]
fn what_is_no_toml_is_told_at_its_place() {
    fault("interface = \"eth0\"\nqueues = = 2\n", "2:10", &[]);
    fault("interface = \"eth0\ncapture = 'a'", "1:18", &[]);
    fault("a = 1\na = 2\n", "2:1", &["duplicate"]);
}

#[test]
fn all_faults_are_told_from_top_to_bottom() {
    let found = faults("log = 1\n[limits]\nclients = 0\nx = 1\n[user.0]\ny = 2\n");
    let places = ["1:7", "3:11", "4:1", "6:1"].map(|place| format!("t.toml:{place}: "));
    assert_eq!(found.len(), places.len(), "{found:?}");
    for (found, place) in found.iter().zip(places) {
        assert!(found.starts_with(&place), "{found} at {place}");
    }
}

#[test]
fn columns_are_characters() {
    let found = faults("limits = { \"\u{e4}\" = 1, x = 1 }");
    assert!(found[0].starts_with("t.toml:1:12: "), "{found:?}");
    assert!(found[1].starts_with("t.toml:1:21: "), "{found:?}");
}

#[test]
fn shards_are_a_number_or_one_for_each_queue() {
    let shards = |text: &str| {
        let mut config = DeviceConfig::new("eth0");
        sound(text).given.link.apply(&mut config);
        config.shards
    };
    assert_eq!(shards("shards = 64"), ShardCount::Number(64));
    assert_eq!(shards("shards = '3'"), ShardCount::Number(3));
    assert_eq!(shards("shards = 'auto'"), ShardCount::Auto);
    assert_eq!(shards(""), ShardCount::ONE);
    fault("shards = 0", "1:10", &["`shards` is 0", "1 to 64"]);
    fault("shards = 65", "1:10", &["`shards` is 65", "1 to 64"]);
    fault("shards = 'all'", "1:10", &["\"all\"", "1 to 64, or `auto`"]);
}
