//! Call stacks that were sampled, added up: where the time goes.

use std::fmt::Write;

/// What perf calls the program that runs when none does.
const IDLE: &str = "swapper";

/// A function as called from where it stands, or what stands above all functions: a core, a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// In how many samples it was.
    pub samples: u64,
    /// What it called.
    pub called: Vec<Node>,
}

impl Node {
    /// What `perf script -F comm,cpu,ip,sym` printed: for each sample a line `PROGRAM [CPU]`, a line
    /// `ADDRESS FUNCTION` for each function from the innermost to the outermost, and an empty line.
    /// Cores come first, then programs, then functions. Lines that are none of this are passed over.
    #[must_use]
    pub fn of_perf_script(text: &str) -> Self {
        let mut root = Self::default();
        for sample in text.split("\n\n") {
            let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
            let Some((program, core)) = lines.next().and_then(head) else {
                continue;
            };
            // How the kernel idles says nothing.
            let names: Vec<String> = match program {
                IDLE => Vec::new(),
                _ => lines.filter_map(function).collect(),
            };
            let above = [format!("core {core}"), program.to_owned()];
            root.add(above.into_iter().chain(names.into_iter().rev()));
        }
        root.sort();
        root
    }

    fn add(&mut self, path: impl Iterator<Item = String>) {
        self.samples += 1;
        let mut node = self;
        for name in path {
            let place = node.called.iter().position(|other| other.name == name);
            let place = place.unwrap_or_else(|| {
                node.called.push(Self {
                    name,
                    ..Self::default()
                });
                node.called.len() - 1
            });
            node = &mut node.called[place];
            node.samples += 1;
        }
    }

    /// By name, so that what is alike stands alike in two pictures.
    fn sort(&mut self) {
        self.called.sort_by(|one, other| one.name.cmp(&other.name));
        self.called.iter_mut().for_each(Self::sort);
    }

    /// How many functions are above each other at most, this one included.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.called.iter().map(Self::depth).max().unwrap_or(0)
    }

    /// As indented text, for each core: what has at least `least` hundredths of its samples, the
    /// largest first.
    #[must_use]
    pub fn text(&self, least: f64) -> String {
        let mut text = String::new();
        for core in &self.called {
            core.write(&mut text, 0, core.samples, least);
        }
        text
    }

    fn write(&self, out: &mut String, level: usize, whole: u64, least: f64) {
        let share = 100.0 * self.samples as f64 / whole.max(1) as f64;
        if share < least {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{share:5.1} %  {:width$}{}",
            "",
            self.name,
            width = 2 * level
        );
        let mut called: Vec<&Self> = self.called.iter().collect();
        called.sort_by_key(|node| std::cmp::Reverse(node.samples));
        for node in called {
            node.write(out, level + 1, whole, least);
        }
    }
}

/// The program and the core in `PROGRAM [CPU]`.
fn head(line: &str) -> Option<(&str, u32)> {
    let (program, rest) = line.rsplit_once('[')?;
    let (core, _) = rest.split_once(']')?;
    Some((program.trim(), core.parse().ok()?))
}

/// The name in `ADDRESS FUNCTION`; none of what perf does not know.
fn function(line: &str) -> Option<String> {
    let (_, name) = line.trim().split_once(' ')?;
    (name != "[unknown]").then(|| short(name))
}

/// A function's path without the type that a Rust `impl` is for, or without the trait: which module it
/// stands in says enough.
fn short(name: &str) -> String {
    if let Some(at) = name.find("<impl ")
        && let Some(len) = closed(&name[at..])
    {
        let behind = name[at + len..].trim_start_matches("::");
        return format!("{}{behind}", &name[..at]);
    }
    if name.starts_with('<')
        && let Some(len) = closed(name)
        && let Some((kind, _)) = name[1..len].split_once(" as ")
    {
        return format!("{kind}{}", &name[len..]);
    }
    name.to_owned()
}

/// How long the part in angle brackets is with which a text begins.
fn closed(text: &str) -> Option<usize> {
    let mut open = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => open += 1,
            // That of a closure's or function's type: `->`.
            '>' if text[..at].ends_with('-') => {}
            '>' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
rnic perf [001] \n\tffffffff82196394 __xsk_generic_xmit\n\tffffffff81e2f2eb __sys_sendto\n\
\t          3a2e1b <rnic_xsk::xsk_port::XskPort as rnic_xsk::port::Port>::flush\n\
\tffffffffffffffff [unknown]\n\n\
rnic perf [001] \n\tffffffff81e2f2eb __sys_sendto\n\
\t          3a2e1b <rnic_xsk::xsk_port::XskPort as rnic_xsk::port::Port>::flush\n\n\
swapper [000] \n\tffffffff821f2c2b pv_native_safe_halt\n\n";

    #[test]
    fn samples_add_up_from_the_outermost_function_to_the_innermost() {
        let root = Node::of_perf_script(SCRIPT);
        assert_eq!((root.samples, root.depth()), (3, 6));
        let text = root.text(60.0);
        assert_eq!(
            text,
            "100.0 %  core 0\n100.0 %    swapper\n\
             100.0 %  core 1\n100.0 %    rnic perf\n\
             100.0 %      rnic_xsk::xsk_port::XskPort::flush\n100.0 %        __sys_sendto\n"
        );
        let all = root.text(0.0);
        assert!(
            all.ends_with(" 50.0 %          __xsk_generic_xmit\n"),
            "{all}"
        );
    }

    #[test]
    fn what_is_no_sample_is_passed_over() {
        let root = Node::of_perf_script("# comment\n\nno core here\n\tff f\n\n\n");
        assert_eq!(root, Node::default());
        assert_eq!(root.text(0.0), "");
    }

    #[test]
    fn names_lose_the_types_that_they_are_for() {
        let shard = "rnic_engine::shard::link::<impl rnic_engine::shard::Shard<P>>::transmit";
        assert_eq!(short(shard), "rnic_engine::shard::link::transmit");
        let port = "<rnic_xsk::XskPort<F> as rnic_xsk::port::Port>::flush";
        assert_eq!(short(port), "rnic_xsk::XskPort<F>::flush");
        for same in ["memcpy", "a::b::<T>::c", "<impl ", "<a as b", "->"] {
            assert_eq!(short(same), same);
        }
    }
}
