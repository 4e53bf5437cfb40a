use super::*;
use candle_core::Device;

#[test]
fn the_divergence_is_the_batch_mean() {
    // torch: F.kl_div(F.log_softmax(z / 2, 1), F.log_softmax(a / 2, 1), log_target=True,
    //                 reduction="batchmean") * 4
    let z = Tensor::new(&[[1f32, 2.0, 3.0], [0.0, 0.0, 1.0]], &Device::Cpu).unwrap();
    let a = Tensor::new(&[[2f32, 1.0, 0.0], [1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
    let kl = |z, a| divergence(z, a, 2.0).unwrap().to_scalar::<f32>().unwrap();
    assert!((kl(&z, &a) - 0.818_107_5).abs() < 1e-5, "{}", kl(&z, &a));
    assert!(kl(&a, &a).abs() < 1e-5);
}

#[test]
fn the_distance_of_features_is_one_minus_their_cosine() {
    // numpy: z = [[3, 4], [1, 0]], a = [[4, 3], [0, 2]]: 1 - mean(24 / 25, 0) = 0.52
    let z = Tensor::new(&[[3f32, 4.0], [1.0, 0.0]], &Device::Cpu).unwrap();
    let a = Tensor::new(&[[4f32, 3.0], [0.0, 2.0]], &Device::Cpu).unwrap();
    let number = |t: Tensor| t.to_scalar::<f32>().unwrap();
    assert!((number(feature_distance(&z, &a).unwrap()) - 0.52).abs() < 1e-6);
    let longer = (&a * 7.0).unwrap();
    assert!((number(feature_distance(&z, &longer).unwrap()) - 0.52).abs() < 1e-6);
    let nothing = z.zeros_like().unwrap();
    assert_eq!(number(feature_distance(&nothing, &a).unwrap()), 1.0);
}

#[test]
fn standardised_features_have_mean_zero_and_deviation_one() {
    let x = Tensor::new(&[[1f32, 5.0, 2.0], [3.0, 5.0, -2.0]], &Device::Cpu).unwrap();
    let standard = Standard::of(&x).unwrap();
    let found = standard.apply(&x).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(found, [[-1.0, 0.0, 1.0], [1.0, 0.0, -1.0]]);
}

#[test]
fn without_cross_entropy_no_targets_are_asked_for() {
    let z = Tensor::new(&[[1f32, 2.0]], &Device::Cpu).unwrap();
    let objective = Objective {
        ce_weight: 0.0,
        kl_weight: 2.0,
        temperature: 1.0,
    };
    let a = Tensor::new(&[[0f32, 0.0]], &Device::Cpu).unwrap();
    let loss = objective.loss(&z, Some(&a), || unreachable!()).unwrap();
    let twice = (divergence(&z, &a, 1.0).unwrap() * 2.0).unwrap();
    let [loss, twice] = [loss, twice].map(|t| t.to_scalar::<f32>().unwrap());
    assert_eq!(loss, twice);
}
