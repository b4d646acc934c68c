// Relaxes the temperature of a plate: a program that is not Python.
#include <cstdio>
#include <vector>

int main() {
    const int n = 600, sweeps = 400;
    std::vector<double> now(n * n, 0.0), next(n * n, 0.0);
    for (int i = 0; i < n; i++) now[i] = next[i] = 100.0;
    for (int sweep = 0; sweep < sweeps; sweep++) {
        for (int y = 1; y < n - 1; y++)
            for (int x = 1; x < n - 1; x++)
                next[y * n + x] = 0.25 * (now[(y - 1) * n + x] + now[(y + 1) * n + x] + now[y * n + x - 1] + now[y * n + x + 1]);
        now.swap(next);
    }
    std::printf("centre: %f\n", now[n / 2 * n + n / 2]);
}
