//! Tables for people: columns as wide as their widest cell, numbers to the right. Where the output has too few
//! columns for a row, the row goes on in further lines, all rows in the same way.

use std::ops::Range;

/// What is before the first column of a row's further lines.
const INDENT: usize = 4;
/// What is between two columns.
const GAP: usize = 2;

/// Rows of cells under their columns' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// No rows yet.
    pub fn new(columns: &[&'static str]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has a cell for each column.
    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Its lines for an output of so many characters a line; without a width each row is one line. Only a cell
    /// that is wider than the output makes a line too long.
    pub fn text(&self, width: Option<usize>) -> String {
        let columns: Vec<(usize, bool)> = (0..self.columns.len())
            .map(|column| (self.width(column), self.is_numeric(column)))
            .collect();
        let lines = lines(&columns, width.unwrap_or(usize::MAX));
        let header = self.columns.iter().map(|name| (*name).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&header).chain(&self.rows) {
            for line in &lines {
                let cells = row[line.clone()].iter().zip(&columns[line.clone()]);
                let cells: Vec<String> =
                    cells.map(|(cell, column)| padded(cell, *column)).collect();
                let indent = if line.start == 0 { 0 } else { INDENT };
                let line = format!("{:indent$}{}", "", cells.join(&" ".repeat(GAP)));
                text += line.trim_end();
                text.push('\n');
            }
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let name = self.columns.get(column).map_or(0, |name| name.len());
        widest.max(name)
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        let is_number = |cell: &str| {
            // Addresses and clients with their program begin with a digit too.
            cell.starts_with(|first: char| first.is_ascii_digit() || first == '+')
                && !cell.contains([':', '('])
        };
        cells.all(|cell| cell == "-" || is_number(cell)) && !self.rows.is_empty()
    }
}

fn padded(cell: &str, (width, numeric): (usize, bool)) -> String {
    match numeric {
        true => format!("{cell:>width$}"),
        false => format!("{cell:<width$}"),
    }
}

/// Which columns each line of a row has: as many as there is room for.
fn lines(columns: &[(usize, bool)], room: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let (mut begin, mut used) = (0, 0);
    for (column, (width, _)) in columns.iter().enumerate() {
        if column > begin && used + width > room {
            lines.push(begin..column);
            (begin, used) = (column, INDENT);
        }
        used += width + GAP;
    }
    lines.push(begin..columns.len());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_pairs() -> Table {
        let mut table = Table::new(&["QP", "state", "bytes"]);
        table.push(vec!["7".into(), "Rts".into(), "123456789".into()]);
        table.push(vec!["1000".into(), "Connecting".into(), "-".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let expected = "  QP  state           bytes\n   7  Rts         123456789\n1000  Connecting          -\n";
        assert_eq!(queue_pairs().text(None), expected);
        // To the last character.
        assert_eq!(queue_pairs().text(Some(27)), expected);
    }

    #[test]
    fn rows_that_are_too_wide_go_on_in_further_lines() {
        let expected = "  QP  state\n        bytes\n   7  Rts\n    123456789\n1000  Connecting\n            -\n";
        assert_eq!(queue_pairs().text(Some(26)), expected);
    }
}
