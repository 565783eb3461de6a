use clap::Parser;
use rnic::{DisconnectReason, Refusal};

use super::*;

#[derive(Debug, Parser)]
struct Server {
    #[command(flatten)]
    at: Listen,
    #[arg(long)]
    once: bool,
}

#[derive(Debug, Parser)]
struct Client {
    #[command(flatten)]
    to: Connect,
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn unreachable() -> ToolError {
    ToolError::Rnic(rnic::Error::Refused(Refusal {
        code: RefusalCode::Unreachable,
        message: "no route".into(),
    }))
}

#[test]
fn a_server_listens_everywhere_unless_it_is_told_where() {
    for (words, address) in [
        (&["x"][..], "[::]:18515"),
        (&["x", "--listen"], "[::]:18515"),
        (&["x", "--listen", "--once"], "[::]:18515"),
        (&["x", "--listen", ":7471"], "[::]:7471"),
        (&["x", "--listen", "198.18.0.1"], "198.18.0.1:18515"),
        (&["x", "--listen=198.18.0.1:7471"], "198.18.0.1:7471"),
    ] {
        let server = Server::try_parse_from(words).unwrap();
        assert_eq!(server.at.addresses(), [at(address)], "{words:?}");
        assert_eq!(server.once, words.contains(&"--once"));
    }
}

#[test]
fn a_client_is_told_its_server_once_with_or_without_a_word() {
    for words in [
        &["x", "198.18.0.1"][..],
        &["x", "--connect", "198.18.0.1"],
        &["x", "198.18.0.1:18515"],
    ] {
        let client = Client::try_parse_from(words).unwrap();
        assert_eq!(client.to.addresses(), [at("198.18.0.1:18515")], "{words:?}");
    }
    for words in [
        &["x"][..],
        &["x", "198.18.0.1", "--connect", "198.18.0.1"],
        &["x", "198.18.0.1:0"],
    ] {
        Client::try_parse_from(words).unwrap_err();
    }
}

#[test]
fn a_name_that_does_not_resolve_is_an_error_of_the_command_line() {
    let error = Client::try_parse_from(["x", "rnic.invalid"]).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("rnic.invalid does not resolve"), "{told}");
}

#[test]
fn addresses_are_tried_in_order_until_one_can_be_used() {
    let all = [
        at("[2001:db8::1]:1"),
        at("198.18.0.1:1"),
        at("198.18.0.2:1"),
    ];
    let mut tried = Vec::new();
    let used = first_usable(&all, |address| {
        tried.push(address);
        match address.is_ipv6() {
            true => Err(unreachable()),
            false => Ok(address),
        }
    });
    assert_eq!(used.unwrap(), all[1]);
    assert_eq!(tried, all[..2]);
}

#[test]
fn when_none_can_be_used_the_error_says_why_of_each_and_of_one_alone_nothing_else() {
    let all = [at("[2001:db8::1]:1"), at("198.18.0.1:1")];
    let error = first_usable(&all, |address| match address.is_ipv6() {
        true => Err::<(), _>(unreachable()),
        false => Err(ToolError::Rnic(rnic::Error::ConnectFailed {
            reason: DisconnectReason::Reset,
            message: "nobody listens".into(),
        })),
    });
    let told = error.unwrap_err().to_string();
    for part in ["2001:db8::1: no route", "198.18.0.1: ", "nobody listens"] {
        assert!(told.contains(part), "{told}");
    }
    let alone = first_usable(&all[..1], |_| Err::<(), _>(unreachable()));
    assert_eq!(alone.unwrap_err().to_string(), "no route");
}

#[test]
fn what_is_wrong_with_the_transfer_is_not_tried_at_another_address() {
    let all = [at("198.18.0.1:1"), at("198.18.0.2:1")];
    let mut attempts = 0;
    let error = first_usable(&all, |_| {
        attempts += 1;
        Err::<(), _>(ToolError::Corrupt { position: 7 })
    });
    assert!(matches!(error, Err(ToolError::Corrupt { position: 7 })));
    assert_eq!(attempts, 1);
}
