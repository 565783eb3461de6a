use super::*;
use crate::{ChunkSize, XskPort};

#[test]
fn the_kernel_can_return_only_what_is_out_and_only_once() {
    let (_umem, mut pool) = Umem::heap(2, ChunkSize::Bytes2048);
    let mut table = empty_table(2);
    let frame = pool.alloc().unwrap();
    let index = frame.index();
    table[index] = Some(frame);
    assert!(
        take(&mut table, 1 - index).is_none(),
        "a chunk that is not out"
    );
    assert!(take(&mut table, 2).is_none(), "a chunk beyond the UMEM");
    assert!(take(&mut table, usize::MAX).is_none());
    assert_eq!(take(&mut table, index).unwrap().index(), index);
    assert!(take(&mut table, index).is_none(), "twice");
}

#[test]
fn a_port_may_be_opened_in_one_thread_and_polled_in_another() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<XskPort>();
    send::<crate::MemoryPort>();
    send::<FramePool>();
    send::<Umem>();
    sync::<Umem>();
}
