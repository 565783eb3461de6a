//! Tables for people: columns as wide as their widest cell, numbers to the right.

use std::fmt;

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

    /// Are there no rows?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let name = self.columns.get(column).map_or(0, |name| name.len());
        widest.max(name)
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.all(|cell| {
            cell == "-" || cell.starts_with(|first: char| first.is_ascii_digit() || first == '+')
        }) && !self.rows.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<(usize, bool)> = (0..self.columns.len())
            .map(|column| (self.width(column), self.is_numeric(column)))
            .collect();
        let header = self.columns.iter().map(|name| (*name).to_owned()).collect();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::new();
            for (cell, (width, numeric)) in row.iter().zip(&columns) {
                let cell = if *numeric {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                };
                line.push_str(&cell);
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["QP", "state", "bytes"]);
        table.push(vec!["7".into(), "Rts".into(), "123456789".into()]);
        table.push(vec!["1000".into(), "Connecting".into(), "-".into()]);
        let expected = "  QP  state           bytes\n   7  Rts         123456789\n1000  Connecting          -\n";
        assert_eq!(table.to_string(), expected);
    }
}
