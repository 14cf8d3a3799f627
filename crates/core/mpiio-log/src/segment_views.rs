//! The views that the current segment of a log defines.

use crate::view::View;
use std::collections::HashMap;
use std::sync::Arc;

/// Most views whose addresses are remembered.
const MAX_ADDRESSES: usize = 1024;

/// The views of a segment and their numbers.
#[derive(Debug, Default)]
pub(crate) struct SegmentViews {
    by_encoding: HashMap<Box<[u8]>, u32>,
    /// Numbers by the addresses of views, which `views` keeps in use.
    by_address: HashMap<usize, u32>,
    views: Vec<Arc<View>>,
}

impl SegmentViews {
    /// The number of a view that is defined.
    pub fn number(&mut self, view: &Arc<View>) -> Option<u32> {
        let address = Arc::as_ptr(view).addr();
        if let Some(number) = self.by_address.get(&address) {
            return Some(*number);
        }
        let number = *self.by_encoding.get(view.encoded())?;
        if self.views.len() == MAX_ADDRESSES {
            self.views.clear();
            self.by_address.clear();
        }
        self.by_address.insert(address, number);
        self.views.push(Arc::clone(view));
        Some(number)
    }

    /// The number that the next view will get.
    pub fn next(&self) -> u32 {
        self.by_encoding.len() as u32
    }

    pub fn define(&mut self, view: &View) {
        let number = self.next();
        self.by_encoding.insert(view.encoded().into(), number);
    }
}
