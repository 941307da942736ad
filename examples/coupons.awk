# How many of `kinds` coupons are found in `draws` draws, each as likely as the others? Prints the share as an accuracy.
#
#     awk -v kinds=50 -v draws=120 -v seed=0 -f examples/coupons.awk

BEGIN {
    srand(seed + 1) # 0 and 1 are the same to some
    for (draw = 1; draw <= draws; draw++) {
        kind = int(kinds * rand())
        if (!(kind in seen)) {
            seen[kind] = 1
            found++
        }
    }
    printf "{\"step\": %d, \"accuracy\": %.6f}\n", draws, found / kinds
}
