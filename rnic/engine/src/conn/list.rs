//! Lists whose elements lie in one table for all connections of a shard: a connection that has none
//! has no memory for them, and adding one never allocates.

/// No element.
pub(super) const NONE: u32 = u32::MAX;

/// The elements of all lists of one kind.
#[derive(Debug)]
pub(super) struct Nodes<T> {
    nodes: Vec<Node<T>>,
    /// The first vacant node, linked by `next`.
    vacant: u32,
    /// Elements that there are, and that there may be.
    used: usize,
    most: usize,
}

#[derive(Debug)]
struct Node<T> {
    element: T,
    previous: u32,
    next: u32,
}

/// One list: its elements are linked in both directions.
#[derive(Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl<T: Copy> Nodes<T> {
    /// A table of `most` elements, whose memory is made here.
    pub(super) fn new(most: usize) -> Self {
        let most = most.min(NONE as usize);
        Self {
            nodes: Vec::with_capacity(most),
            vacant: NONE,
            used: 0,
            most,
        }
    }

    /// Whether there may be so many more.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.most.saturating_sub(self.used) >= more
    }

    /// The element at `index`, if that is one.
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.nodes.get(index as usize).map(|node| &node.element)
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.node(index).map(|node| &mut node.element)
    }

    /// The element before the one at `index`, [`NONE`] for the first.
    pub(super) fn before(&self, index: u32) -> u32 {
        let node = self.nodes.get(index as usize);
        node.map_or(NONE, |node| node.previous)
    }

    /// The elements from the one at `index` on.
    pub(super) fn from(&self, index: u32) -> impl Iterator<Item = &T> {
        let node = |index: u32| self.nodes.get(index as usize);
        let nodes = std::iter::successors(node(index), move |last| node(last.next));
        nodes.map(|node| &node.element)
    }

    fn node(&mut self, index: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(index as usize)
    }

    fn take(&mut self, node: Node<T>) -> u32 {
        debug_assert!(self.used < self.most, "there is room for all");
        self.used += 1;
        let index = self.vacant;
        if let Some(vacant) = self.nodes.get_mut(index as usize) {
            self.vacant = vacant.next;
            *vacant = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its first element.
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// The last element that is `wanted`, looked for from the end.
    pub(super) fn last_that<T: Copy>(&self, nodes: &Nodes<T>, wanted: impl Fn(&T) -> bool) -> u32 {
        let mut index = self.last;
        while let Some(element) = nodes.get(index)
            && !wanted(element)
        {
            index = nodes.before(index);
        }
        index
    }

    /// Inserts an element after the one at `previous`, at the front if that is [`NONE`].
    pub(super) fn insert_behind<T: Copy>(
        &mut self,
        nodes: &mut Nodes<T>,
        previous: u32,
        element: T,
    ) {
        let next = match nodes.node(previous) {
            Some(node) => node.next,
            None => self.first,
        };
        let index = nodes.take(Node {
            element,
            previous,
            next,
        });
        match nodes.node(previous) {
            Some(node) => node.next = index,
            None => self.first = index,
        }
        match nodes.node(next) {
            Some(node) => node.previous = index,
            None => self.last = index,
        }
        self.len += 1;
    }

    /// Takes the element at `index`, which is one of this list or none, away.
    pub(super) fn remove<T: Copy>(&mut self, nodes: &mut Nodes<T>, index: u32) -> Option<T> {
        let vacant = nodes.vacant;
        let node = nodes.node(index)?;
        let (element, previous, next) = (node.element, node.previous, node.next);
        node.next = vacant;
        nodes.vacant = index;
        nodes.used -= 1;
        match nodes.node(previous) {
            Some(node) => node.next = next,
            None => self.first = next,
        }
        match nodes.node(next) {
            Some(node) => node.previous = previous,
            None => self.last = previous,
        }
        self.len -= 1;
        Some(element)
    }
}
