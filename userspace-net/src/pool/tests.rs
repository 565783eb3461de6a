use super::*;

/// Most ranges of a set.
const LIMIT: usize = 1024;

fn push(pool: &mut QueuePool<u32>, queue: &mut VecDeque<u32>, buf: u32) {
    pool.make_room(queue);
    queue.push_back(buf);
}

fn made(pool: &QueuePool<u32>) -> Vec<(usize, usize, usize)> {
    let count = |(segments, pool): &(usize, Pool<_>)| (*segments, pool.made, pool.free.len());
    pool.sizes.iter().map(count).collect()
}

#[test]
fn a_queue_grows_through_the_sizes_and_keeps_its_order() {
    let mut pool = QueuePool::new(100, 0);
    let mut queue = VecDeque::new();
    for buf in 0..100 {
        push(&mut pool, &mut queue, buf);
    }
    assert_eq!(queue, (0..100).collect::<Vec<_>>());
    assert_eq!(
        made(&pool),
        [(4, 1, 1), (16, 1, 1), (64, 1, 1), (100, 1, 0)]
    );
    pool.settle(&mut queue);
    assert!(queue.capacity() > 0, "it is not empty");
    queue.clear();
    pool.settle(&mut queue);
    assert_eq!(queue.capacity(), 0);
    assert_eq!(
        made(&pool),
        [(4, 1, 1), (16, 1, 1), (64, 1, 1), (100, 1, 1)]
    );
}

#[test]
fn there_are_as_many_pieces_as_were_lent_at_once() {
    let mut pool = QueuePool::new(256, 0);
    for _ in 0..10 {
        let mut queues: Vec<VecDeque<u32>> = (0..3).map(|_| VecDeque::new()).collect();
        for queue in &mut queues {
            push(&mut pool, queue, 7);
        }
        for queue in &mut queues {
            queue.clear();
            pool.settle(queue);
            pool.settle(queue);
        }
    }
    assert_eq!(
        made(&pool),
        [(4, 3, 3), (16, 0, 0), (64, 0, 0), (256, 0, 0)]
    );
}

#[test]
fn what_a_few_connections_need_is_there_from_the_start() {
    let counts = |connections| made(&QueuePool::new(16, connections));
    assert_eq!(counts(3), [(4, 3, 3), (16, 3, 3)]);
    assert_eq!(counts(usize::MAX), [(4, WARM, WARM), (16, WARM, WARM)]);
    let large = made(&QueuePool::new(1024, usize::MAX));
    assert_eq!(large[2..], [(64, 32, 32), (256, 8, 8), (1024, 2, 2)]);
    let mut pool = QueuePool::new(16, 1);
    let mut queue = VecDeque::new();
    push(&mut pool, &mut queue, 1);
    assert_eq!(made(&pool), [(4, 1, 0), (16, 1, 1)]);
    assert_eq!(pool.lent(), 1);
}

#[test]
fn what_came_back_last_is_lent_first() {
    let mut pool = RangePool::new(LIMIT, 0);
    let (mut a, mut b) = (VecDeque::new(), VecDeque::new());
    pool.make_room(&mut a);
    pool.make_room(&mut b);
    let address = a.as_slices().0.as_ptr();
    pool.settle(&mut b);
    pool.settle(&mut a);
    let mut again = VecDeque::new();
    pool.make_room(&mut again);
    assert_eq!(again.as_slices().0.as_ptr(), address);
}

/// Fills `set` until it is refused; how many ranges it has then.
fn fill(pool: &mut RangePool, set: &mut VecDeque<Range<u64>>) -> usize {
    while pool.make_room(set) {
        set.push_back(0..1);
    }
    set.len()
}

#[test]
fn only_so_many_connections_have_very_many_ranges() {
    let mut pool = RangePool::new(LIMIT, 0);
    let mut sets: Vec<_> = (0..WIDE_MAX).map(|_| VecDeque::new()).collect();
    for set in &mut sets {
        assert_eq!(fill(&mut pool, set), LIMIT);
    }
    let mut late = VecDeque::new();
    assert_eq!(fill(&mut pool, &mut late), RANGES_FEW);
    sets[0].clear();
    pool.settle(&mut sets[0]);
    pool.settle(&mut sets[0]);
    assert_eq!(fill(&mut pool, &mut late), LIMIT);
    assert_eq!(fill(&mut pool, &mut sets[0]), RANGES_FEW);
}
