use super::*;

#[test]
fn values_are_read_as_they_are_written() {
    assert_eq!("1%".parse(), Ok(Share(0.01)));
    assert_eq!("0.25".parse(), Ok(Share(0.25)));
    assert_eq!("500Mbit".parse(), Ok(Rate(Some(500_000_000))));
    assert_eq!("62.5MB/s".parse(), Ok(Rate(Some(500_000_000))));
    assert_eq!("none".parse(), Ok(Rate(None)));
    assert_eq!("256p".parse(), Ok(Limit::Packets(256)));
    assert_eq!("64KiB".parse(), Ok(Limit::Bytes(65536)));
    assert_eq!("50ms".parse(), Ok(Span(Duration::from_millis(50))));
    assert_eq!("1.5s".parse(), Ok(Span(Duration::from_millis(1500))));
    assert_eq!("200us".parse(), Ok(Span(Duration::from_micros(200))));
    assert_eq!("1400".parse(), Ok(Mtu(Some(1400))));
    let burst: Burst = "0.1%:25%:90%".parse().unwrap();
    assert_eq!(burst.bad, Share(0.9));
    assert_eq!(burst.good, Share::NONE);
}

#[test]
fn what_has_no_unit_or_no_sense_is_refused_with_its_text() {
    fn refused<T: FromStr<Err = String>>(texts: &[&str]) {
        for text in texts {
            let Err(error) = text.parse::<T>() else {
                panic!("{text} was taken");
            };
            assert!(error.contains(text), "{error}");
        }
    }
    refused::<Share>(&["2", "101%", "-1%", "x", ""]);
    refused::<Rate>(&["500", "500M", "1bit", "Mbit", "2000Gbit"]);
    refused::<Limit>(&["256", "p", "-1p", "1q"]);
    refused::<Span>(&["50", "ms", "-1s", "2days"]);
    refused::<Mtu>(&["67", "70000", "1400B"]);
    refused::<Burst>(&["1%:2%:3%:4%:5%"]);
}

#[test]
fn a_share_hits_as_often_as_it_says() {
    let share: Share = "25%".parse().unwrap();
    assert!(share.hits((1 << 62) - 1));
    assert!(!share.hits(1 << 62));
    assert!(!Share::NONE.hits(0));
    assert!(Share::ALL.hits(u64::MAX));
}
