//! A script's text to steps: lines, `config`, `do` and `param`; what a step does is in the modules
//! below.

mod call;
mod segment;
mod settings;
mod step;

pub use segment::FLAGS;

use std::path::Path;
use std::rc::Rc;

use crate::lexer::{Cursor, Malformed};
use crate::syntax::{Place, Script, Settings, Step};

/// Deepest `do` within `do`.
const DEPTH_MAX: usize = 8;

/// Why a file is no script.
#[derive(Debug)]
pub struct NoScript {
    pub place: String,
    pub why: Malformed,
}

impl std::fmt::Display for NoScript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Malformed { expected, found } = &self.why;
        write!(f, "{}: expected {expected}, found {found}", self.place)
    }
}

/// Reads `text`, the content of the file that reports call `name`; `common` has what `do` includes.
pub fn script(name: &str, text: &str, common: &Path) -> Result<Script, NoScript> {
    let mut reader = Reader {
        common,
        settings: Settings::default(),
        steps: Vec::new(),
    };
    reader.file(&Rc::from(name), text, None, &[])?;
    Ok(Script {
        settings: reader.settings,
        steps: reader.steps,
    })
}

struct Reader<'a> {
    common: &'a Path,
    settings: Settings,
    steps: Vec<Step>,
}

/// `name=value` of a `do` line.
type Argument = (String, String);

impl Reader<'_> {
    fn file(
        &mut self,
        name: &Rc<str>,
        text: &str,
        by: Option<&Rc<Place>>,
        arguments: &[Argument],
    ) -> Result<(), NoScript> {
        let mut arguments = arguments.to_vec();
        let mut unknown: Vec<String> = arguments.iter().map(|(name, _)| name.clone()).collect();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let text = substituted(line, &arguments);
            let place = Place {
                file: name.clone(),
                line: index + 1,
                text: Rc::from(text.as_str()),
                by: by.cloned(),
            };
            let at = place.to_string();
            let failed = |why| NoScript { place: at, why };
            if let Some(defaults) = line.strip_prefix("param ") {
                for (name, default) in pairs(defaults).map_err(failed)? {
                    unknown.retain(|given| *given != name);
                    if !arguments.iter().any(|(given, _)| *given == name) {
                        arguments.push((name, default));
                    }
                }
            } else if let Some(call) = text.strip_prefix("do ") {
                self.include(call, place)?;
            } else {
                self.line(&text, place).map_err(failed)?;
            }
        }
        match (unknown.first(), by) {
            (Some(unknown), Some(by)) => Err(NoScript {
                place: by.to_string(),
                why: Malformed {
                    expected: format!("a parameter of {name}"),
                    found: format!("\"{unknown}\""),
                },
            }),
            _ => Ok(()),
        }
    }

    fn include(&mut self, call: &str, place: Place) -> Result<(), NoScript> {
        let at = place.to_string();
        let failed = |why| NoScript {
            place: at.clone(),
            why,
        };
        let mut cursor = Cursor::new(call);
        let name = cursor.chunk("the name of a common file").map_err(failed)?;
        let arguments = pairs(cursor.remaining()).map_err(failed)?;
        let depth = std::iter::successors(Some(&place), |place| place.by.as_deref()).count();
        let path = self.common.join(format!("{name}.tcp"));
        let text = std::fs::read_to_string(&path);
        let text = match text {
            Ok(text) if depth <= DEPTH_MAX => text,
            _ => {
                return Err(failed(Malformed {
                    expected: format!("the name of a file of {}", self.common.display()),
                    found: format!("\"{name}\""),
                }));
            }
        };
        let file = Rc::from(format!("common/{name}.tcp"));
        self.file(&file, &text, Some(&Rc::new(place)), &arguments)
    }

    fn line(&mut self, text: &str, place: Place) -> Result<(), Malformed> {
        if let Some(settings) = text.strip_prefix("config ") {
            if !self.steps.is_empty() {
                let expected = "`config` ahead of every step".to_owned();
                let found = format!("\"{text}\" behind one");
                return Err(Malformed { expected, found });
            }
            for (name, value) in pairs(settings)? {
                self.settings.set(&name, &value)?;
            }
            return Ok(());
        }
        let mut before = self.steps.iter().rev().map(|step| &step.action);
        let before = before.find(|action| !action.is_look());
        let steps = step::steps(text, &place, before)?;
        self.steps.extend(steps);
        Ok(())
    }
}

/// `a=1 b="x y"`.
fn pairs(text: &str) -> Result<Vec<Argument>, Malformed> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let wrong = || Malformed {
            expected: "`name=value`".to_owned(),
            found: format!("\"{rest}\""),
        };
        let (name, value) = rest.split_once('=').ok_or_else(wrong)?;
        let quoted = value.strip_prefix('"').map(|value| value.split_once('"'));
        let (value, behind) = match quoted {
            Some(quoted) => quoted.ok_or_else(wrong)?,
            None => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        let plain = !name.is_empty() && !name.contains(char::is_whitespace);
        if !plain || (value.is_empty() && quoted.is_none()) {
            return Err(wrong());
        }
        pairs.push((name.to_owned(), value.to_owned()));
        rest = behind.trim_start();
    }
    Ok(pairs)
}

/// Puts arguments where `$name` stands.
fn substituted(line: &str, arguments: &[Argument]) -> String {
    let mut arguments: Vec<&Argument> = arguments.iter().collect();
    // A name that begins like another comes first.
    arguments.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    arguments
        .iter()
        .fold(line.to_owned(), |line, (name, value)| {
            line.replace(&format!("${name}"), value)
        })
}
