//! Where a case's time goes: `perf` samples call stacks on all cores while it runs, and
//! the result is a flame graph.

use std::fmt::Write;
use std::process::{Command, Output, Stdio};

use super::stacks::Node;
use super::{Case, Ground};
use rnic_tools::svg::escaped;

/// Samples of each core a second: no divisor of what else happens regularly.
const RATE: &str = "997";
/// What is kept of each stack, in bytes, to find the callers in.
const STACK: &str = "dwarf,8192";

const WIDTH: f64 = 1400.0;
const ROW: f64 = 16.0;
const MARGIN: f64 = 10.0;
/// What a letter takes.
const LETTER: f64 = 6.6;
/// Narrower than this nobody sees it.
const NARROWEST: f64 = 0.4;

/// Runs a case once under perf; the samples that were taken.
///
/// # Errors
///
/// When the case fails, or there is no perf, or it may not.
pub fn record(case: &Case, ground: &mut Ground) -> Result<Node, String> {
    let data = ground.directory().join("perf.data");
    // It samples as long as cat runs, and that as long as its input is open: signals that would end
    // perf are blocked here (`interrupt`).
    let perf = Command::new("perf")
        .args(["record", "-q", "-a", "-e", "cpu-clock", "-F", RATE])
        .args(["--call-graph", STACK, "-o"])
        .arg(&data)
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("can't start perf: {error} (scripts/setup --flame installs it)")
        })?;
    let outcome = case.run(ground);
    // Closes its input, and waits.
    let recorded = perf.wait_with_output();
    outcome?;
    done(
        "record",
        &recorded.map_err(|error| format!("perf is lost: {error}"))?,
    )?;
    let script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "comm,cpu,ip,sym", "-i"])
        .arg(&data)
        .output()
        .map_err(|error| format!("can't start perf: {error}"))?;
    done("script", &script)?;
    Ok(Node::of_perf_script(&String::from_utf8_lossy(
        &script.stdout,
    )))
}

fn done(what: &str, output: &Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("perf {what} failed ({}): {said}", output.status))
}

/// As a document of its own: each function is as wide as it was often sampled, and stands on what
/// called it. Rust's are blue, the others orange.
#[must_use]
pub fn svg(root: &Node, title: &str) -> String {
    let height = ROW * (root.depth() as f64 + 1.0) + 2.0 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"{ROW}\">{}</text>\n",
        escaped(title)
    );
    let scale = (WIDTH - 2.0 * MARGIN) / root.samples.max(1) as f64;
    row(
        &mut text,
        &root.called,
        [MARGIN, height - MARGIN - ROW],
        scale,
        root.samples,
    );
    text += "</svg>\n";
    text
}

fn row(out: &mut String, nodes: &[Node], [mut x, y]: [f64; 2], scale: f64, whole: u64) {
    for node in nodes {
        let width = node.samples as f64 * scale;
        if width >= NARROWEST {
            let colour = if node.name.contains("::") {
                "#8ecae6"
            } else {
                "#f4b860"
            };
            let name = escaped(&node.name);
            let share = 100.0 * node.samples as f64 / whole.max(1) as f64;
            let (high, below) = (ROW - 1.0, y + ROW - 4.5);
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "<g><title>{name}: {share:.1} %</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
                 width=\"{width:.1}\" height=\"{high}\" fill=\"{colour}\" stroke=\"white\" \
                 stroke-width=\"0.5\"/><text x=\"{:.1}\" y=\"{below:.1}\">{}</text></g>",
                x + 2.0,
                escaped(&cut(&node.name, width)),
            );
            row(out, &node.called, [x, y - ROW], scale, whole);
        }
        x += width;
    }
}

/// The end of a name, which says more than its beginning, as long as there is room for.
fn cut(name: &str, width: f64) -> String {
    let room = ((width - 4.0) / LETTER).max(0.0) as usize;
    let len = name.chars().count();
    match room {
        0..3 => String::new(),
        _ => name.chars().skip(len.saturating_sub(room)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, samples: u64, called: Vec<Node>) -> Node {
        Node {
            name: name.into(),
            samples,
            called,
        }
    }

    #[test]
    fn a_function_is_as_wide_as_it_was_often_sampled_and_stands_on_its_caller() {
        let leaf = node("rnic::transmit", 1, Vec::new());
        let main = node("main<&>", 4, vec![leaf]);
        let root = node("", 4, vec![main]);
        let text = svg(&root, "a < b");
        assert!(
            text.contains("a &lt; b") && text.contains("main&lt;&amp;&gt;"),
            "{text}"
        );
        assert!(
            text.contains("width=\"1380.0\"") && text.contains("width=\"345.0\""),
            "{text}"
        );
        let high = |width: &str| {
            let rect = text.lines().find(|line| line.contains(width))?;
            let (_, rest) = rect.split_once(" y=\"")?;
            rest.split_once('"')?.0.parse::<f64>().ok()
        };
        assert!(high("width=\"345.0\"") < high("width=\"1380.0\""), "{text}");
        assert!(text.ends_with("</svg>\n"));
    }

    #[test]
    fn a_name_keeps_its_end() {
        assert_eq!(cut("rnic_engine::transmit", 66.0), ":transmit");
        assert_eq!(cut("short", 1000.0), "short");
        assert_eq!(cut("short", 10.0), "");
    }

    #[test]
    fn no_samples_are_an_empty_picture() {
        assert!(svg(&Node::default(), "nothing").ends_with("</svg>\n"));
    }
}
