//! An answer that is given again and again.

use std::time::Duration;

use clap::Args;
use rnic_tools::endpoint::ToolError;
use rnic_tools::screen::Screen;

use crate::Style;

/// How often, and how long between two answers.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Again {
    /// Answer again every so many seconds. A terminal is redrawn until q or Ctrl-C; anything else gets one answer
    /// after the other, in JSON each in a line
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) watch: Option<Duration>,
    /// Answer so many times and end [default: until interrupted]
    #[arg(long, value_name = "TIMES", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) times: Option<u64>,
}

/// What an answer is asked from: nothing the first time, at the second the state that the first left.
type Answer<'a, S> = dyn FnMut(Option<S>) -> Result<(Option<String>, S), ToolError> + 'a;

/// Gives answers: text of whole lines. One that needs two looks at the RNIC has none at the first.
pub(crate) fn answers<S>(
    again: Again,
    style: Style,
    answer: &mut Answer<'_, S>,
) -> Result<(), ToolError> {
    let Some(pause) = again.watch else {
        let (text, _) = answer(None)?;
        rnic_tools::out!("{}", text.unwrap_or_default());
        return Ok(());
    };
    // Only text for people is for a screen.
    let mut screen = match style.json {
        true => None,
        false => Some(Screen::open()?),
    };
    let (mut before, mut times) = (None, 0);
    loop {
        let (text, state) = answer(before)?;
        before = Some(state);
        if let Some(text) = text {
            match &mut screen {
                Some(screen) => screen.show(&text),
                None => rnic_tools::out!("{text}"),
            }
            times += 1;
        }
        if again.times == Some(times) {
            return Ok(());
        }
        std::thread::sleep(pause);
    }
}

/// A number of seconds that something is repeated after.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.01);
    parsed
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a number of seconds, at least 0.01".to_owned())
}
