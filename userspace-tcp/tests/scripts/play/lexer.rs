//! One line of a script, read from left to right.

use std::time::Duration;

/// A line that is not of the dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// What should have stood there.
    pub expected: String,
    pub found: String,
}

pub type Parsed<T> = Result<T, Malformed>;

/// The rest of a line.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub fn new(line: &'a str) -> Self {
        Self { rest: line.trim() }
    }

    /// The error that `expected` is not here.
    pub fn wrong(&self, expected: &str) -> Malformed {
        let found = if self.rest.is_empty() {
            "the end of the line".to_owned()
        } else {
            format!("\"{}\"", self.rest)
        };
        Malformed {
            expected: expected.to_owned(),
            found,
        }
    }

    pub fn remaining(&self) -> &'a str {
        self.rest
    }

    pub fn end(&self) -> Parsed<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.wrong("the end of the line"))
        }
    }

    /// Whether `sign` stands here; it is passed over then, and the blanks behind it.
    pub fn eat(&mut self, sign: &str) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    pub fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.eat(sign) {
            Ok(())
        } else {
            Err(self.wrong(&format!("`{sign}`")))
        }
    }

    /// Like [`Cursor::eat`], but for whole words.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let mut ahead = *self;
        let is = ahead.word("").is_ok_and(|found| found == word);
        if is {
            *self = ahead;
        }
        is
    }

    /// Letters, digits and what stands within names.
    pub fn word(&mut self, expected: &str) -> Parsed<&'a str> {
        self.while_is(
            |c| c.is_ascii_alphanumeric() || c == '_' || c == '-',
            expected,
        )
    }

    /// Everything up to a blank.
    pub fn chunk(&mut self, expected: &str) -> Parsed<&'a str> {
        self.while_is(|c| !c.is_whitespace(), expected)
    }

    fn while_is(&mut self, is: impl Fn(char) -> bool, expected: &str) -> Parsed<&'a str> {
        let word = self.take(is);
        if word.is_empty() {
            return Err(self.wrong(expected));
        }
        self.rest = self.rest.trim_start();
        Ok(word)
    }

    /// Blanks behind it stay.
    fn take(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let len = self.rest.find(|c| !is(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    pub fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Parsed<T> {
        let mut ahead = *self;
        let negative = ahead.rest.starts_with('-');
        if negative {
            ahead.rest = &ahead.rest[1..];
        }
        let here = *self;
        let digits = ahead.while_is(|c| c.is_ascii_digit(), expected);
        let digits = digits.map_err(|_| here.wrong(expected))?;
        let sign = if negative { "-" } else { "" };
        let number = format!("{sign}{digits}").parse();
        let number = number.map_err(|_| here.wrong(expected))?;
        *self = ahead;
        Ok(number)
    }

    /// `.2`, `0.2`, `2`: seconds; or with a unit: `200ms`, `50us`, `10s`.
    pub fn duration(&mut self, expected: &str) -> Parsed<Duration> {
        let here = *self;
        let digits = self.take(|c| c.is_ascii_digit() || c == '.');
        let unit: u64 = match self.take(|c| c.is_ascii_alphabetic()) {
            "" | "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" => 1_000,
            "ns" => 1,
            _ => return Err(here.wrong(expected)),
        };
        self.rest = self.rest.trim_start();
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let number = |digits: &str| match digits {
            "" => Some(0),
            digits => digits.parse::<u64>().ok(),
        };
        let scale = 10_u64.checked_pow(u32::try_from(part.len()).unwrap_or(u32::MAX));
        let nanos =
            number(whole)
                .zip(number(part))
                .zip(scale)
                .and_then(|((whole, part), scale)| {
                    whole
                        .checked_mul(unit)?
                        .checked_add(part.checked_mul(unit)? / scale)
                });
        match nanos {
            Some(nanos) if digits.contains(|c: char| c.is_ascii_digit()) => {
                Ok(Duration::from_nanos(nanos))
            }
            _ => Err(here.wrong(expected)),
        }
    }
}
