use std::io::Write;

use super::*;
use crate::linksim::{Mtu, Rate, Share, TooBig};

fn read(text: &str) -> Result<File, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    File::read(file.path())
}

#[test]
fn a_file_says_all_that_the_command_line_can() {
    let file = read(
        r#"
        left = "a"
        right = "b"
        seed = 7

        [both]
        rate = "500Mbit"
        loss = 0.01
        queue = "256p"

        [to-left]
        loss = "5%"
        too-big = "silent"

        [[change]]
        at = "2s"
        toward = "right"
        set.mtu = 1400

        [[change]]
        after = 1000
        set = { loss = "0%", delay = "5ms" }
        "#,
    )
    .unwrap();
    let config = Config::new(7, &[file.layer()], &file.change).unwrap();
    let [right, left] = &config.settings;
    assert_eq!(right.rate, "500Mbit".parse::<Rate>().unwrap());
    assert_eq!(right.loss, "1%".parse::<Share>().unwrap());
    assert_eq!(left.loss, "5%".parse::<Share>().unwrap());
    assert_eq!(
        (right.too_big, left.too_big),
        (TooBig::Answer, TooBig::Silent)
    );
    assert_eq!(config.changes.each_ref().map(Vec::len), [2, 1]);
    assert_eq!(config.changes[0][0].when, When::At(Duration::from_secs(2)));
    let mtu = config.changes[0][0].set.mtu;
    assert_eq!(mtu.and_then(Mtu::bytes), Some(1400));
    assert_eq!(config.changes[1][0].when, When::After(1000));
}

#[test]
fn what_is_laid_on_top_wins_and_one_direction_goes_before_both() {
    let pairs = |text: &str| Impairments::from_pairs([text]).unwrap();
    let (file, own) = (pairs("loss=1%"), pairs("loss=2%"));
    let (both, none) = (pairs("delay=1ms"), Impairments::default());
    let below = Layer {
        both: &file,
        own: [&own, &none],
    };
    let above = Layer {
        both: &both,
        own: [&none, &own],
    };
    let config = Config::new(1, &[below, above], &[]).unwrap();
    for settings in &config.settings {
        assert_eq!(settings.loss, "2%".parse::<Share>().unwrap());
        assert_eq!(settings.delay, Duration::from_millis(1));
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    for (text, says) in [
        ("[both]\nlos = 1", "los"),
        ("[both]\nloss = \"2x\"", "2x"),
        ("[both]\nrate = 500", "500Mbit"),
        ("seed = -1", "line 1"),
        ("[[change]]\nat = \"1s\"", "set"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = File::read(Path::new("/nowhere/link.toml")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/link.toml"));
}

#[test]
fn changes_are_read_from_the_command_line() {
    let planned: Planned = "after=5,toward=left,loss=1%,mtu=none".parse().unwrap();
    assert_eq!(planned.after, Some(5));
    assert_eq!(planned.toward, Toward::Left);
    assert_eq!(
        planned.set,
        Impairments::from_pairs(["loss=1%", "mtu=none"]).unwrap()
    );
    for (text, says) in [
        ("loss=1%", "neither"),
        ("at=1s,after=3,loss=1%", "both"),
        ("at=1s,los=1%", "los"),
        ("at=1s,loss=x", "'x'"),
        ("at=1s,toward=up", "'up'"),
        ("after=x", "'x'"),
        ("at=1s,loss", "loss"),
    ] {
        let error = text.parse::<Planned>().unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for text in ["ecn=10p", "queue=0p"] {
        let both = Impairments::from_pairs([text]).unwrap();
        let none = Impairments::default();
        let layer = Layer {
            both: &both,
            own: [&none, &none],
        };
        assert!(Config::new(1, &[layer], &[]).is_err(), "{text}");
    }
}
