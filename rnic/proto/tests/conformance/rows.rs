//! The tables: one row is `| id | level | in our words | state | tests |`.

/// What is said of one requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: String,
    pub level: String,
    /// The requirement in our own words.
    pub text: String,
    pub state: State,
    /// Why, or what is missing.
    pub reason: String,
    /// As nextest names them: binary, space, path.
    pub tests: Vec<String>,
}

/// Where we stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Done, and held up by tests.
    Met,
    /// It asks something of somebody else, or of a part that we don't have; the reason says which.
    NotApplicable,
    /// We do otherwise, and say why.
    Exception,
    /// Not done yet.
    Open,
    /// Of a part of a protocol that is still to be built.
    Planned,
}

impl State {
    /// In the order of the summary's columns.
    pub const ALL: [Self; 5] = [
        Self::Met,
        Self::NotApplicable,
        Self::Exception,
        Self::Open,
        Self::Planned,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotApplicable => "not applicable",
            Self::Exception => "exception",
            Self::Open => "open",
            Self::Planned => "planned",
        }
    }
}

/// The rows of a table, or what is wrong with its lines.
pub fn parse(name: &str, text: &str) -> Result<Vec<Row>, Vec<String>> {
    let (mut rows, mut complaints) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if !line.starts_with("| RFC") {
            continue;
        }
        match row(line) {
            Ok(row) => rows.push(row),
            Err(what) => complaints.push(format!("{name}:{}: {what}", index + 1)),
        }
    }
    if complaints.is_empty() {
        Ok(rows)
    } else {
        Err(complaints)
    }
}

fn row(line: &str) -> Result<Row, String> {
    let cells = cells(line);
    let [id, level, text, state, tests] = cells[..] else {
        return Err(format!("{} cells, 5 wanted", cells.len()));
    };
    let (state, reason) = state.split_once(": ").unwrap_or((state, ""));
    let known = State::ALL.into_iter().find(|known| known.name() == state);
    Ok(Row {
        id: id.to_string(),
        level: level.to_string(),
        text: text.to_string(),
        state: known.ok_or_else(|| format!("{id}: no state is called {state:?}"))?,
        reason: reason.to_string(),
        tests: quoted(tests),
    })
}

pub fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(str::trim).collect()
}

/// What stands between backticks.
pub fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect()
}
