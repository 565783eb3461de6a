//! A check that can't fail is none: scripts that are wrong on purpose, each with where and how it
//! has to fail in its first line: `# fails at LINE: TEXT`.

use crate::{files, lexer, parse};

fn expectation(text: &str) -> (usize, String) {
    let first = text.lines().next().expect("a first line");
    let rest = first
        .strip_prefix("# fails at ")
        .expect("`# fails at LINE: TEXT`");
    let (line, why) = rest.split_once(": ").expect("`LINE: TEXT`");
    (line.parse().expect("a line number"), why.to_owned())
}

#[test]
fn what_is_wrong_fails_where_it_is_wrong() {
    let scripts = files::scripts_of("must_fail");
    assert!(scripts.len() >= 20, "only {} scripts", scripts.len());
    for path in scripts {
        let (line, why) = expectation(&files::read(&path));
        let name = files::name(&path);
        let Err(report) = files::run::<crate::alone::Alone>(&path) else {
            panic!("{name} holds, but is wrong");
        };
        let mark = format!(" > {line:4} | ");
        assert!(
            report.contains(&mark),
            "{name} fails elsewhere than at line {line}:\n{report}"
        );
        assert!(
            report.contains(&why),
            "{name} does not say {why:?}:\n{report}"
        );
    }
}

#[test]
fn what_is_malformed_says_where_and_what_was_expected() {
    let scripts = files::scripts_of("malformed");
    assert!(scripts.len() >= 15, "only {} scripts", scripts.len());
    for path in scripts {
        let text = files::read(&path);
        let (line, why) = expectation(&text);
        let name = files::name(&path);
        let Err(error) = parse::script(&name, &text, &files::common()) else {
            panic!("{name} was read, but is malformed");
        };
        let error = error.to_string();
        let place = format!("{name}:{line}: expected ");
        assert!(
            error.starts_with(&place),
            "{error:?} does not begin with {place:?}"
        );
        assert!(error.contains(&why), "{error:?} does not say {why:?}");
    }
}

#[test]
fn times_are_read_exactly() {
    use std::time::Duration;
    let read = |text: &str| lexer::Cursor::new(text).duration("a time");
    for (text, nanos) in [
        ("0", 0),
        (".2", 200_000_000),
        ("0.000001", 1_000),
        ("1.5s", 1_500_000_000),
        ("200ms", 200_000_000),
        ("2.5us", 2_500),
    ] {
        assert_eq!(read(text), Ok(Duration::from_nanos(nanos)), "{text}");
    }
    for text in [".", "ms", "5h", "99999999999999999999"] {
        assert!(read(text).is_err(), "{text}");
    }
}
