use super::*;
use clap::Arg;

fn program(argument: Arg) -> Command {
    Command::new("rnic-ping")
        .version("1.2.3")
        .about("Pings")
        .subcommand(Command::new("client").about("Begins").arg(argument))
}

#[test]
fn what_has_no_help_text_is_named_as_users_write_it() {
    let bare = program(Arg::new("count").long("count"));
    let hidden = Command::new("keep").hide(true);
    let nameless = Command::new("server");
    let command = built(bare.subcommand(nameless).subcommand(hidden));
    let found = undocumented(&command);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("`rnic-ping client --count"),
        "{found:?}"
    );
    assert_eq!(found[1], "`rnic-ping server`");
}

#[test]
fn each_subcommand_has_a_page_and_each_shell_its_completions() {
    let directory = tempfile::tempdir().expect("a directory");
    let command = built(program(Arg::new("count").long("count").help("Rounds")));
    write(&command, 1, directory.path()).expect("it is ours");
    let text = |name: &str| {
        let read = fs::read_to_string(directory.path().join(name));
        read.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let client = text("man/rnic-ping-client.1");
    assert!(client.contains("Rounds"), "{client}");
    assert!(client.contains("RNIC 1.2.3"), "{client}");
    assert!(client.contains("\\fBrnic\\-ping\\fR(1)"), "{client}");
    let page = text("man/rnic-ping.1");
    assert!(page.contains("client"), "{page}");
    assert!(!page.contains("\\fBrnic\\-ping\\fR(1)"), "{page}");
    for shell in ["bash/rnic-ping", "zsh/_rnic-ping", "fish/rnic-ping.fish"] {
        let completions = text(shell);
        assert!(completions.contains("count"), "{shell}: {completions}");
    }
}
