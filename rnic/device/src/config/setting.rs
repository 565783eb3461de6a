//! What a setting is: its declaration says how it is read, what it does and how it is shown. Command line,
//! configuration file, checks, reload and the page of all settings follow from it.

/// A value as somebody gave it, of the setting's [`Kind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// For [`Kind::Flag`].
    Flag(bool),
    /// Within the setting's range.
    Number(u64),
    /// Which [`Setting::set`] reads.
    Text(String),
}

impl Value {
    /// The flag; false for another kind.
    pub fn flag(&self) -> bool {
        *self == Self::Flag(true)
    }

    /// The number; 0 for another kind.
    pub fn number(&self) -> u64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }

    /// The number of a setting whose range is that of `u32` at most.
    pub fn small(&self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    /// The text; empty for another kind.
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }
}

/// Which values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Flag,
    /// From the first to the second.
    Number(u64, u64),
    /// What [`Setting::set`] can read.
    Text,
    /// A number from the first to the second, or such a text.
    NumberOrText(u64, u64),
}

/// When a changed value holds after a reload of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At once.
    AtOnce,
    /// For connections that begin from then on.
    NewConnections,
    /// When the interface is opened again (`rnicctl reload --reopen`).
    Reopen,
    /// When the daemon is started again.
    Restart,
}

/// Another setting without which one means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Its name.
    pub setting: &'static str,
    /// What it is for, and what to give.
    pub why: &'static str,
}

/// The declaration of a setting of a `C`.
#[derive(Clone, Copy, Debug)]
pub struct Setting<C> {
    /// Its name in the file; on the command line with `-` for `_`.
    pub name: &'static str,
    /// What stands for the value in help texts, such as `MS`.
    pub unit: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// When a changed value holds.
    pub change: Change,
    /// Whether it means nothing without an interface ([`crate::LoopbackUse::Only`]).
    pub interface_only: bool,
    /// A setting that must be given too.
    pub needs: Option<Needs>,
    /// What it is, without its default.
    pub help: &'static str,
    /// Gives it a value. Says what to give instead of a text that is none.
    pub set: fn(&mut C, &Value) -> Result<(), String>,
    /// Its value, as it is given or in words.
    pub show: fn(&C) -> String,
}

/// A configuration of declared settings.
pub trait Configured: Sized + 'static {
    /// All of them, in the order in which they are set, shown and documented.
    const SETTINGS: &'static [Setting<Self>];

    /// What holds without any given value.
    fn defaults() -> Self;
}

impl<C: Configured> Setting<C> {
    /// Reads a value from the command line.
    ///
    /// # Errors
    ///
    /// What to give instead.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let number = |least, most| {
            let number = text.parse().ok();
            let number = number.filter(|number| (least..=most).contains(number));
            let number = number.ok_or_else(|| format!("give {least} to {most}"));
            number.map(Value::Number)
        };
        match self.kind {
            Kind::Number(least, most) => number(least, most),
            Kind::NumberOrText(least, most) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                number(least, most)
            }
            Kind::Flag | Kind::Text | Kind::NumberOrText(..) => self.read_text(text),
        }
    }

    /// Reads a value that is no number.
    ///
    /// # Errors
    ///
    /// What to give instead.
    pub fn read_text(&self, text: &str) -> Result<Value, String> {
        let value = Value::Text(text.to_owned());
        (self.set)(&mut C::defaults(), &value)?;
        Ok(value)
    }

    /// The value that holds when none is given.
    pub fn default(&self) -> String {
        (self.show)(&C::defaults())
    }
}

/// The value of a word, where words stand for values.
///
/// # Errors
///
/// The words that there are.
pub(crate) fn of_word<T: Copy>(words: &[(&str, T)], text: &str) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let (last, first) = all.split_last().unwrap_or((&"", &[]));
        format!("give {} or {last}", first.join(", "))
    })
}

/// The word for a value.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> String {
    let found = words.iter().find(|(_, known)| known == value);
    found.map_or("", |(word, _)| word).to_owned()
}

/// Declares settings, each once: name, unit, [`Kind`], [`Change`], what else holds of it, help, `set`, `show`.
#[macro_export]
macro_rules! settings {
    ($(
        $name:literal $unit:literal $kind:ident $(($least:expr, $most:expr))?, $change:ident
        $(, interface_only = $only:literal)? $(, needs = $needs:expr)?;
        $help:literal;
        set |$config:ident, $value:ident| $set:expr;
        show |$shown:ident| $show:expr;
    )*) => {
        &[$($crate::Setting {
            name: $name,
            unit: $unit,
            kind: $crate::Kind::$kind $(($least as u64, $most as u64))?,
            change: $crate::Change::$change,
            interface_only: false $(|| $only)?,
            needs: { #[allow(unused_mut, unused_assignments)] { let mut needs = None; $(needs = Some($needs);)? needs } },
            help: $help,
            set: |$config, $value| { $set; Ok(()) },
            show: |$shown| ($show).to_string(),
        }),*]
    };
}
