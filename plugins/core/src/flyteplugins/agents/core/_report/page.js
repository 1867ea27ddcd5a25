(() => {
  const setUp = (root) => {
    const bar = root.querySelector('.bar')
    const [search, failures] = bar.querySelectorAll('input')
    const [openAll, closeAll] = bar.querySelectorAll('button')
    const output = bar.querySelector('output')
    const steps = [...root.querySelectorAll('li')]
    const folds = [...root.querySelectorAll('details')]
    const groups = [...root.querySelectorAll('.group')]
    let before = null // what was open before the search began
    const show = () => {
      const words = search.value.trim().toLowerCase()
      const active = words !== '' || failures.checked
      if (active && before === null) before = folds.map((fold) => fold.open)
      let found = 0
      for (const step of steps) {
        const matches = (!failures.checked || step.matches('.bad,:has(.bad)'))
          && (words === '' || step.textContent.toLowerCase().includes(words))
        step.hidden = active && !matches
        if (matches) found += 1
      }
      for (const group of groups) group.hidden = active && !group.querySelector('li:not([hidden])')
      if (active) for (const fold of folds) fold.open = words !== '' ? fold.textContent.toLowerCase().includes(words) : true
      else if (before !== null) folds.forEach((fold, index) => { fold.open = before[index] })
      if (!active) before = null
      output.textContent = active ? `${found} of ${steps.length} steps` : ''
    }
    let timer = 0
    search.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(show, 150) })
    failures.addEventListener('change', show)
    openAll.addEventListener('click', () => { for (const fold of folds) fold.open = true })
    closeAll.addEventListener('click', () => { for (const fold of folds) fold.open = false })
    bar.hidden = false
  }
  // Flyte's own tabs are list items that only a mouse can reach.
  const setUpTabs = () => {
    const tabs = [...document.querySelectorAll('#flyte-frame-tabs li')]
    const select = () => { for (const tab of tabs) tab.setAttribute('aria-selected', tab.classList.contains('active')) }
    for (const tab of tabs) {
      tab.parentElement.setAttribute('role', 'tablist')
      tab.setAttribute('role', 'tab')
      tab.tabIndex = 0
      tab.addEventListener('click', () => setTimeout(select))
      tab.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); tab.click() }
      })
    }
    select()
  }
  const start = () => {
    if (!document.documentElement.lang) document.documentElement.lang = 'en'
    document.querySelectorAll('.fla').forEach(setUp)
    setUpTabs()
  }
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start)
  else start()
})()
