//! Values with their places, and the faults that are found there.

use std::ops::{Range, RangeInclusive};
use std::path::Path;

use rnic_device::{Configured, Kind, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::Fault;
use crate::settings::Values;

/// Collects the faults of one file.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    faults: Vec<Fault>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a DeValue<'a>,
    key_span: Range<usize>,
    span: Range<usize>,
}

impl<'a> At<'a> {
    pub(super) fn new(key: &'a Spanned<DeString<'a>>, value: &'a Spanned<DeValue<'a>>) -> Self {
        Self {
            key: key.get_ref(),
            value: value.get_ref(),
            key_span: key.span(),
            span: value.span(),
        }
    }
}

impl At<'_> {
    /// Where the value stands.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Self {
        Self {
            path,
            text,
            faults: Vec::new(),
        }
    }

    /// All faults, from the file's beginning to its end.
    pub(super) fn into_faults(mut self) -> Vec<Fault> {
        self.faults.sort();
        self.faults
    }

    /// Something is wrong at these bytes of the text.
    pub(super) fn fault(&mut self, span: Range<usize>, message: String) {
        let start = self.text.floor_char_boundary(span.start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        self.faults.push(Fault {
            path: self.path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        });
    }

    pub(super) fn wrong_key(&mut self, at: &At<'_>, message: String) {
        self.fault(at.key_span.clone(), message);
    }

    /// A key that means nothing here, where these mean something.
    pub(super) fn unknown(&mut self, at: &At<'_>, known: &[&str]) {
        let known = known.join(", ");
        self.wrong_key(
            at,
            format!("key `{}` is unknown: there are {known}", at.key),
        );
    }

    /// A setting of `C`, if the key is one.
    pub(super) fn setting<C: Configured>(&mut self, at: &At<'_>, values: &mut Values) -> bool {
        let Some(setting) = C::SETTINGS.iter().find(|setting| setting.name == at.key) else {
            return false;
        };
        let is_number = matches!(at.value, DeValue::Integer(_));
        let value = match setting.kind {
            Kind::Flag => self.flag(at).map(Value::Flag),
            Kind::Number(least, most) => self.number(at, least..=most).map(Value::Number),
            Kind::NumberOrText(least, most) if is_number => {
                self.number(at, least..=most).map(Value::Number)
            }
            Kind::Text | Kind::NumberOrText(..) => self.parsed(at, |text| setting.read_text(text)),
        };
        if let Some(value) = value {
            values.insert(setting.name, value);
        }
        true
    }

    pub(super) fn text(&mut self, at: &At<'_>) -> Option<String> {
        self.parsed(at, |text| Ok(text.to_owned()))
    }

    /// A string that `parse` makes something of, or says what it wants.
    pub(super) fn parsed<T>(
        &mut self,
        at: &At<'_>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let DeValue::String(text) = at.value else {
            self.wrong_kind(at, "a string");
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(advice) => {
                let message = format!("`{}` is {text:?}: {advice}", at.key);
                self.fault(at.span.clone(), message);
                None
            }
        }
    }

    /// True or false.
    pub(super) fn flag(&mut self, at: &At<'_>) -> Option<bool> {
        let DeValue::Boolean(value) = at.value else {
            self.wrong_kind(at, "true or false");
            return None;
        };
        Some(*value)
    }

    /// An integer within a range, in any of TOML's ways to write it.
    pub(super) fn number<T>(&mut self, at: &At<'_>, range: RangeInclusive<T>) -> Option<T>
    where
        T: Copy + PartialOrd + TryFrom<i128> + std::fmt::Display,
    {
        let DeValue::Integer(number) = at.value else {
            self.wrong_kind(at, "an integer");
            return None;
        };
        let found = i128::from_str_radix(number.as_str(), number.radix());
        let value = found.ok().and_then(|found| T::try_from(found).ok());
        let value = value.filter(|value| range.contains(value));
        if value.is_none() {
            let (least, most) = range.into_inner();
            let message = format!("`{}` is {number}: give {least} to {most}", at.key);
            self.fault(at.span.clone(), message);
        }
        value
    }

    pub(super) fn table<'v>(&mut self, at: &At<'v>) -> Option<&'v DeTable<'v>> {
        match at.value {
            DeValue::Table(table) => Some(table),
            _ => {
                self.wrong_kind(at, "a table");
                None
            }
        }
    }

    /// A list, each of its elements under the same key.
    pub(super) fn list<'v>(&mut self, at: &At<'v>) -> Option<Vec<At<'v>>> {
        let DeValue::Array(array) = at.value else {
            self.wrong_kind(at, "a list");
            return None;
        };
        let element = |value: &'v Spanned<DeValue<'v>>| At {
            key: at.key,
            value: value.get_ref(),
            key_span: at.key_span.clone(),
            span: value.span(),
        };
        Some(array.iter().map(element).collect())
    }

    pub(super) fn wrong_kind(&mut self, at: &At<'_>, wanted: &str) {
        let found = at.value.type_str();
        let message = format!("`{}` is a value of type {found}: give {wanted}", at.key);
        self.fault(at.span.clone(), message);
    }
}
