use super::*;

/// Keeps what it is told.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl Log for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        self.0.lock().unwrap().push(line);
    }

    fn flush(&self) {}
}

impl Limited<Kept> {
    fn say(&self, now: Instant, place: u32, words: &str) {
        let mut record = Record::builder();
        record.level(Level::Warn).line(Some(place));
        record.module_path_static(Some("rnicd::clients"));
        self.log_at(now, &record.args(format_args!("{words}")).build());
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.logger.0.lock().unwrap())
    }
}

fn left_out(lines: u32) -> String {
    format!("WARN {lines} more lines of one kind were left out: more than {LINES} came in a second")
}

#[test]
fn a_cause_in_a_loop_has_so_many_lines_a_second_and_a_count_of_the_rest() {
    let (limited, start) = (Limited::new(Kept::default()), Instant::now());
    for _ in 0..1000 {
        limited.say(start, 1, "again");
    }
    assert_eq!(limited.told().len(), LINES as usize);
    limited.say(start + WINDOW, 1, "again");
    assert_eq!(
        limited.told(),
        [left_out(1000 - LINES), "WARN again".to_owned()]
    );
    // Told once.
    limited.say(start + WINDOW * 3, 1, "again");
    assert_eq!(limited.told(), ["WARN again"]);
}

#[test]
fn another_cause_is_not_hidden_and_brings_the_count() {
    let (limited, start) = (Limited::new(Kept::default()), Instant::now());
    for _ in 0..=LINES {
        limited.say(start, 1, "again");
    }
    limited.told();
    limited.say(start, 2, "something else");
    assert_eq!(limited.told(), ["WARN something else"]);
    limited.say(start + WINDOW, 2, "something else");
    assert_eq!(
        limited.told(),
        [left_out(1), "WARN something else".to_owned()]
    );
}

#[test]
fn what_is_left_out_at_the_end_is_told_by_a_flush() {
    let (limited, start) = (Limited::new(Kept::default()), Instant::now());
    for _ in 0..=LINES {
        limited.say(start, 1, "again");
    }
    limited.told();
    limited.flush();
    assert_eq!(limited.told(), [left_out(1)]);
    limited.flush();
    assert!(limited.told().is_empty());
}

/// What a thousand peers cause, each with its own address in the line, from one place in the code.
#[test]
fn lines_from_one_place_are_of_one_cause_whatever_they_say() {
    log::set_max_level(log::LevelFilter::Info);
    let (limited, begin) = (Limited::new(Kept::default()), Instant::now());
    for port in 0..1000 {
        log::info!(
            logger: limited,
            "198.18.0.9:{port} sent an FPDU in error (MPA: CRC), where no Terminate may answer"
        );
    }
    limited.flush();
    let windows = begin.elapsed().as_secs() as u32 + 1;
    let (counts, lines): (Vec<_>, Vec<_>) = limited
        .told()
        .into_iter()
        .partition(|line| line.contains("were left out"));
    assert!(lines.len() <= (LINES * windows) as usize, "{lines:?}");
    let left_out = counts.iter().filter_map(|line| line.split(' ').nth(1));
    let left_out: usize = left_out.map(|count| count.parse::<usize>().unwrap()).sum();
    assert_eq!(lines.len() + left_out, 1000, "{counts:?}");
}
