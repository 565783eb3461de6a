//! The filters of `.config/nextest.toml`: nextest says nothing of one that matches no test, and its setting
//! (one at a time, more time, output that is shown) would silently be nobody's.

use toml::Table;

use crate::sources::Tests;

/// What is wrong with the filters of a configuration of nextest.
pub fn complaints(config: &str, tests: &Tests) -> Vec<String> {
    let config: Table = match toml::from_str(config) {
        Ok(config) => config,
        Err(error) => return vec![error.to_string()],
    };
    let profiles = config.get("profile").and_then(|all| all.as_table());
    let overrides = profiles.into_iter().flatten().flat_map(|(_, profile)| {
        let overrides = profile.get("overrides").and_then(|all| all.as_array());
        overrides.into_iter().flatten()
    });
    let mut complaints = Vec::new();
    for setting in overrides {
        match setting.get("filter").and_then(|filter| filter.as_str()) {
            None => complaints.push(format!("an override without a filter: {setting:?}")),
            Some(filter) => complaints.extend(complaints_of(filter, tests)),
        }
    }
    complaints
}

/// Of one filter: each of its alternatives (`|`) has to match a test by all of its terms (`&`).
fn complaints_of(filter: &str, tests: &Tests) -> Vec<String> {
    let alternatives = filter.split('|').filter_map(|alternative| {
        let terms: Result<Vec<Term<'_>>, String> = alternative.split('&').map(Term::new).collect();
        let terms = match terms {
            Ok(terms) => terms,
            Err(error) => return Some(format!("{filter}: {error}")),
        };
        let matches = |name: &&String| terms.iter().all(|term| term.matches(name));
        let found = tests.keys().any(|name| matches(&name));
        (!found).then(|| format!("{filter}: `{}` matches no test", alternative.trim()))
    });
    alternatives.collect()
}

/// What a filter is made of, of nextest's language as much as is used.
enum Term<'a> {
    All,
    Package(&'a str),
    Binary(&'a str),
    Test(&'a str),
    /// The beginning of a test's name: `test(/^module::/)`.
    TestsOf(&'a str),
}

impl<'a> Term<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        let inner = |name: &str| text.strip_prefix(name)?.strip_suffix(')');
        if inner("all(") == Some("") {
            return Ok(Self::All);
        }
        let package = inner("package(").map(Self::Package);
        let named = package.or_else(|| inner("binary(").map(Self::Binary));
        let named = named.or_else(|| inner("test(=").map(Self::Test));
        let beginning = text
            .strip_prefix("test(/^")
            .and_then(|rest| rest.strip_suffix("/)"));
        // Nothing that is special in a regular expression.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let beginning = beginning.filter(|name| name.chars().all(plain));
        let named = named.or_else(|| beginning.map(Self::TestsOf));
        named.ok_or_else(|| {
            format!("`{text}` is nothing that tests/conformance/filters.rs knows: teach it")
        })
    }

    /// By the name that nextest gives: `package::binary module::test`.
    fn matches(&self, name: &str) -> bool {
        let (binary, test) = name.split_once(' ').unwrap_or((name, ""));
        // A library's is called as its package.
        let (package, binary) = binary.split_once("::").unwrap_or((binary, binary));
        match self {
            Self::All => true,
            Self::Package(wanted) => package == *wanted,
            Self::Binary(wanted) => binary.trim_start_matches("bin/") == *wanted,
            Self::Test(wanted) => test == *wanted,
            Self::TestsOf(beginning) => test.starts_with(beginning),
        }
    }
}

#[test]
fn a_filter_that_matches_nothing_is_told() {
    let tests = Tests::from([
        ("p tests::a".into(), true),
        ("q::bin/tool b".into(), true),
        ("q::more c".into(), true),
    ]);
    let of = |filter: &str| {
        let config = format!("[[profile.default.overrides]]\nfilter = '{filter}'\nretries = 0\n");
        complaints(&config, &tests)
    };
    for right in [
        "all()",
        "package(p)",
        "package(p) | package(q)",
        "package(p) & test(=tests::a)",
        "test(=b)",
        "package(p) & binary(p)",
        "package(q) & binary(tool)",
        "binary(more) & test(=c)",
        "package(p) & test(/^tests::/)",
    ] {
        assert_eq!(of(right), [""; 0], "{right}");
    }
    for (wrong, told) in [
        ("package(pp)", "matches no test"),
        ("package(p) | package(r)", "`package(r)` matches no test"),
        ("package(q) & test(=tests::a)", "matches no test"),
        ("test(=a)", "matches no test"),
        ("package(p) & binary(more)", "matches no test"),
        ("package(p) & test(/^test::/)", "matches no test"),
        ("test(/^a.*b/)", "teach it"),
        ("kind(bin)", "teach it"),
    ] {
        let found = of(wrong);
        assert!(found.len() == 1 && found[0].contains(told), "{found:?}");
    }
    let found = complaints("[[profile.long.overrides]]\nretries = 1\n", &tests);
    assert!(found[0].contains("without a filter"), "{found:?}");
}
