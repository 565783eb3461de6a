use std::collections::VecDeque;

use super::*;

fn contents(queue: &Queue, links: &Links) -> Vec<u32> {
    let next = |&index: &u32| Some(links.0[index as usize].next).filter(|&next| next != NONE);
    std::iter::successors(queue.first(), next).collect()
}

#[test]
fn whoever_came_first_is_first() {
    let (mut links, mut queue) = (Links::default(), Queue::default());
    for index in [5, 0, 9] {
        queue.push(&mut links, index);
        queue.push(&mut links, index);
    }
    assert_eq!((queue.len(), queue.first()), (3, Some(5)));
    let order: Vec<u32> = std::iter::from_fn(|| queue.pop(&mut links)).collect();
    assert_eq!(order, [5, 0, 9]);
    assert_eq!((queue.len(), queue.first()), (0, None));
}

#[test]
fn any_order_of_changes_gives_what_a_plain_list_gives() {
    let mut links = Links::default();
    let mut queues = [Queue::default(), Queue::default()];
    let mut models = [VecDeque::new(), VecDeque::new()];
    let mut state = 1_u64;
    for _ in 0..20_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let index = (state >> 33) as u32 % 20;
        let which = (state >> 40) as usize % 2;
        let (queue, other) = (&mut queues[which], 1 - which);
        match (state >> 50) % 4 {
            0 | 1 => {
                queue.push(&mut links, index);
                if !models.iter().any(|model| model.contains(&index)) {
                    models[which].push_back(index);
                }
            }
            2 if !models[other].contains(&index) => {
                queue.remove(&mut links, index);
                models[which].retain(|&i| i != index);
            }
            _ => assert_eq!(queue.pop(&mut links), models[which].pop_front()),
        }
        for (queue, model) in queues.iter().zip(&models) {
            assert_eq!(*model, contents(queue, &links));
            assert_eq!(queue.len(), model.len());
        }
    }
}
