use super::sites::Site;
use super::{c_sites, sites, switch};

const SOURCE: &str = "
const LIMIT: u32 = 1 + 2;
const fn fixed() -> u32 {
    3
}
fn f(a: u32) -> Option<u32> {
    if a < 7 && g(a) {
        h(a);
    }
    match a {
        9 => None,
        _ => Some(a.min(5)),
    }
}
#[cfg(test)]
mod tests {
    fn t() -> bool {
        true
    }
}
";

/// What is said of the sites of a line, counted from 0.
fn changes(source: &str, line: usize) -> Vec<String> {
    let sites = sites::of(source).unwrap().remove(&line);
    sites
        .unwrap_or_default()
        .into_iter()
        .map(|site| site.change)
        .collect()
}

#[test]
fn a_line_is_changed_where_its_code_has_a_value_or_an_effect() {
    let of_if = ["condition negated", "&& is ||", "< is <=", "one more"];
    assert_eq!(changes(SOURCE, 6), of_if);
    assert_eq!(changes(SOURCE, 7), ["call left out"]);
    assert_eq!(
        changes(SOURCE, 11),
        ["Some is None", "min is max", "one more"]
    );
}

#[test]
fn constants_patterns_and_tests_are_left_alone() {
    for line in [1, 2, 3, 10, 14, 15, 16, 17] {
        assert_eq!(changes(SOURCE, line), [""; 0], "line {line}");
    }
}

#[test]
fn changes_of_one_kind_on_a_line_are_told_apart() {
    assert_eq!(
        changes("fn f() -> u32 {\n    g(1, 2)\n}\n", 1)[1..],
        ["one more", "one more (2)"]
    );
}

#[test]
fn a_mutant_within_another_is_in_what_the_other_leaves_as_it_was() {
    let source = "fn f(a: u32) -> bool { a < 7 }";
    let site = |range: std::ops::Range<usize>, changed: &str| Site {
        range,
        changed: changed.to_string(),
        is_statement: false,
        change: String::new(),
    };
    let (outer, inner) = (site(23..28, "a <= 7"), site(27..28, "7 + 1"));
    let (text, places) = switch::write("f.rs", source, &[(2, &inner), (1, &outer)]);
    let on = |number| format!("if crate::mutant_switch::on({number})");
    let inner = format!("({} {{ 7 + 1  }} else {{ 7 }})", on(2));
    let outer = format!("({} {{ a <= 7  }} else {{ a < {inner} }})", on(1));
    assert_eq!(text, format!("fn f(a: u32) -> bool {{ {outer} }}"));
    let of = |number| {
        &text[places
            .iter()
            .find(|(of, _)| *of == number)
            .unwrap()
            .1
            .clone()]
    };
    assert_eq!(of(1), outer);
    assert_eq!(of(2), inner);
}

#[test]
fn a_line_of_a_bpf_program_is_changed_by_a_constant() {
    let source = "static int f(int a)\n{\n\tif (a < 7)\n\t\tg(a);\n\treturn a + 1;\n}\n";
    let sites = c_sites::of(source);
    let told = |line: usize| {
        sites[&line]
            .iter()
            .map(|site| &*site.change)
            .collect::<Vec<_>>()
    };
    assert_eq!(told(2), ["< is <=", "one more", "condition negated"]);
    assert_eq!(told(3), ["left out"]);
    assert_eq!(told(4), ["+ is -", "one more"]);
    let (text, _) = switch::write("f.bpf.c", source, &[(1, &sites[&2][0]), (2, &sites[&3][0])]);
    assert!(
        text.contains("if ((MUTANT == 1 ? (a <= 7 ) : (a < 7)))\n"),
        "{text}"
    );
    assert!(
        text.contains("do { if (MUTANT != 2) { g(a); } } while (0);\n"),
        "{text}"
    );
}
