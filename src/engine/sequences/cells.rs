//! Which cells are taken, and by how many sequences each.

/// A cell, by a number of our own: llama.cpp does not tell its own.
pub type Cell = u32;

/// The cells of a cache.
#[derive(Debug, Default)]
pub struct Cells {
    /// How many sequences hold each cell.
    owners: Vec<u32>,
    free: Vec<Cell>,
}

impl Cells {
    /// A free cell, now held by one sequence.
    pub fn take(&mut self) -> Cell {
        if let Some(cell) = self.free.pop() {
            self.owners[cell as usize] = 1;
            return cell;
        }
        self.owners.push(1);
        (self.owners.len() - 1) as Cell
    }

    /// One more sequence holds these.
    pub fn share(&mut self, cells: &[Cell]) {
        for cell in cells {
            self.owners[*cell as usize] += 1;
        }
    }

    /// One sequence less holds these; those that none holds are free.
    pub fn release(&mut self, cells: &[Cell]) {
        for cell in cells {
            let owners = &mut self.owners[*cell as usize];
            *owners -= 1;
            if *owners == 0 {
                self.free.push(*cell);
            }
        }
    }

    /// How many of these only one sequence holds.
    pub fn alone(&self, cells: &[Cell]) -> usize {
        cells.iter().filter(|cell| self.owners[**cell as usize] == 1).count()
    }

    /// How many are held.
    pub fn used(&self) -> usize {
        self.owners.len() - self.free.len()
    }
}
