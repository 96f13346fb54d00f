"""The work page in a browser: sliders by keyboard, boards, the address that holds the state."""

from playwright.sync_api import expect

pytest_plugins = ["support.browser"]


def test_sliders_by_keyboard_change_the_tried_work_and_the_address(server, page):
    page.goto(f"{server.url}/work")
    page.wait_for_selector("#bars li")
    assert page.locator("#bars li").count() == 5
    page.focus("#steps-slider")
    page.keyboard.press("ArrowRight")
    page.focus("#first_trained-slider")
    page.keyboard.press("End")
    expect(page.locator("#tried-words")).to_contain_text("15 steps of fc2 alone")
    assert "steps=15" in page.url and "first_trained=3" in page.url
    again = page.url
    page.goto(again)
    page.wait_for_selector("#bars li")
    assert page.input_value("#steps") == "15" and "fc2 alone" in page.inner_text("#part")


def test_another_board_gets_a_bar_and_the_best_deadline_a_plan(server, page):
    page.goto(f"{server.url}/work?deadline_ms=1")
    page.wait_for_selector("#bars li")
    assert page.inner_text("#badge") == "no plan"
    page.fill("[id='kind-accelerator-70']", "2")
    expect(page.locator("#bars li")).to_have_count(7)
    page.click("#use-best")
    expect(page.locator("#badge")).to_have_text("fits")
    assert page.locator("#bars .track:not(.tried)").count() == 7
